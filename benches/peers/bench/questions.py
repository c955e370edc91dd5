"""The eight questions, and what an answer is: a dict from what a value stands for to the value, the same for all databases.

q1 {time: value}; q2 {minute: average}; q3 {(host, five minutes): most}; q4 {(metric, minute): average};
q5 {(metric, its tags in order): last value}; q6 {"p99": value}; q7 {(host, time): value}; q8 {(host, minute): average}. Times are milliseconds.
"""

import dataclasses

START_MS = 1_767_322_800_000  # START_S of load/src/synthetic.rs

TEXT = {
    "q1": "one series, raw, an hour",
    "q2": "one metric, average over hosts by minute",
    "q3": "one metric, most by host and 5 minutes",
    "q4": "five metrics, average by minute",
    "q5": "last value of every series",
    "q6": "99th percentile of one metric",
    "q7": "samples above 90 of one metric",
    "q8": "one metric, average by host and minute",
}


#: How far a value may be from the expected one, in parts of it.
RELATIVE = {
    "any": 1e-9,
    # Its percentile is that of a histogram of 5 digits, and no other is there.
    ("questdb", "q6"): 1e-4,
}


@dataclasses.dataclass(frozen=True)
class Question:
    name: str
    hosts: int
    seconds: int
    metric: str = "cpu_user"
    metrics: tuple = ("cpu_user", "cpu_system", "cpu_idle", "cpu_iowait", "cpu_irq")

    @property
    def host(self):
        """The one host of q1."""
        return f"nid{self.hosts * 42 // 100:05}"

    start_ms = START_MS

    @property
    def end_ms(self):
        return START_MS + self.seconds * 1_000

    @property
    def last_s(self):
        """The time of the last samples, in seconds."""
        return self.end_ms // 1_000 - 1


def questions(hosts, seconds):
    return [Question(name, hosts, seconds) for name in TEXT]


def compare(expected, found, relative=RELATIVE["any"]):
    """How an answer differs from what is expected; None when it does not."""
    if expected.keys() != found.keys():
        missing, strange = expected.keys() - found.keys(), found.keys() - expected.keys()
        example = next(iter(missing or strange))
        return f"{len(found)} values instead of {len(expected)}; {len(missing)} missing, {len(strange)} strange, as {example}"
    wrong = [(key, value, found[key]) for key, value in expected.items() if not near(value, found[key], relative)]
    if wrong:
        key, value, other = wrong[0]
        return f"{len(wrong)} of {len(expected)} values differ, as {key}: {other!r} instead of {value!r}"
    return None


def near(a, b, relative):
    return a == b or abs(a - b) <= relative * max(abs(a), abs(b))
