#!/usr/bin/env python3
"""What the small questions of a dashboard cost: processor and wall time each, of telem and of what is asked beside it.

    benches/dashboard.py target/release/telem
    benches/dashboard.py target/release/telem OLD                     two builds of telem, by turns
    benches/dashboard.py target/release/telem --peer victoria-metrics --peer prometheus
    benches/dashboard.py target/release/telem --peer victoria-metrics=BINARY --clients 4
    benches/dashboard.py target/release/telem --peer victoria-metrics --cores 1
    benches/dashboard.py target/release/telem --peer victoria-metrics --writing 100000 --clients 4

The data is as in TSBS' case cpu-only: 400 hosts with 10 metrics each and 10 tags, every 10 s for 3 h, made anew with a
fixed seed and merged; telem serves it by `telem replay`. The questions are as in TSBS too, with hosts and times drawn
at random: single-groupby-METRICS-HOSTS-HOURS (the greatest value by minute), the hourly maxima of all metrics of 8
hosts, the raw samples of one host for an hour, the hourly averages of every host, the last value of every series
(lastpoint), and the values of usage_user above 90 (high-cpu). Windows lie on whole minutes and hours, so that they are
the same in OpenTSDB's queries, SQL and PromQL.

Processor time is what the kernel counted for the server. Everybody is asked in turn in each round, after a restart,
with caches of answers off; the first 30 answers of each kind are compared, value by value, within 1e-9. `--peer NAME`
builds that database from its Go module where `go` is installed (benches/README.md). All servers listen on loopback and
end with the run.

With `--writing N` nothing is merged and nothing restarted: the questions go to the server that took the data in, while
N samples a second of the same series come in, later than what is asked for. What these cost by themselves is measured
before, and taken from the processor time of the questions. The last values are not asked for then.
"""

import argparse
import dataclasses
import datetime
import functools
import http.client
import itertools
import json
import math
import multiprocessing
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
sys.dont_write_bytecode = True

from bench import binaries, machine, remote_write  # noqa: E402
from bench.prometheus import Prometheus  # noqa: E402
from bench.questions import compare  # noqa: E402
from bench.report import SHORT, number, table  # noqa: E402
from bench.server import ANSWER_S, Failed, Process  # noqa: E402
from bench.telem import JSON, Telem, milliseconds  # noqa: E402
from bench.victoria import VictoriaMetrics  # noqa: E402

STEP_S, HOURS, START = 10, 3, 1_451_606_400
STEPS, END = HOURS * 3_600 // STEP_S, START + HOURS * 3_600
METRICS = ["user", "system", "idle", "nice", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"]
LINES_A_REQUEST = 2_000
STEPS_A_REQUEST, HOSTS_A_REQUEST = 60, 20
#: How many questions of a kind are asked before those that count: files are opened and threads started by them.
WARM = 30


# The data


class Data:
    """Hosts with tags, and a random walk of each of their metrics."""

    def __init__(self, hosts):
        draw = random.Random(7)
        self.tags, self.values = [], []
        for host in range(hosts):
            region = draw.choice(["us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1", "sa-east-1"])
            self.tags.append(
                {
                    "hostname": f"host_{host}",
                    "region": region,
                    "datacenter": region + draw.choice("abc"),
                    "rack": str(draw.randrange(100)),
                    "os": draw.choice(["Ubuntu16.10", "Ubuntu15.10"]),
                    "arch": draw.choice(["x64", "x86"]),
                    "team": draw.choice(["SF", "NYC", "LON", "CHI"]),
                    "service": str(draw.randrange(20)),
                    "service_version": str(draw.randrange(2)),
                    "service_environment": draw.choice(["production", "test"]),
                }
            )
            self.values.append([draw.uniform(0, 100) for _ in METRICS])
        self.draw = draw

    def rows(self, steps=range(STEPS)):
        """Time, host and whole values, all hosts of a step together."""
        gauss = self.draw.gauss
        for step in steps:
            for host, before in enumerate(self.values):
                self.values[host] = now = [min(100, max(0, value + gauss(0, 1))) for value in before]
                yield START + STEP_S * step, host, [int(value) for value in now]

    def lines(self, steps=range(STEPS)):
        """Bodies of InfluxDB's line protocol, times in seconds."""
        tags = [",".join(f"{name}={value}" for name, value in tags.items()) for tags in self.tags]
        names = [f"usage_{name}=" for name in METRICS]

        def line(row):
            time_s, host, values = row
            return f"cpu,{tags[host]} {','.join(f'{name}{value}i' for name, value in zip(names, values))} {time_s}\n"

        for rows in parts(self.rows(steps), LINES_A_REQUEST):
            yield "".join(map(line, rows)).encode()

    def remote(self):
        """Bodies of Prometheus' remote write: ten minutes of some hosts, the samples of a series together."""
        labels = [
            [remote_write.labels({"__name__": f"cpu_usage_{name}", **tags}) for name in METRICS] for tags in self.tags
        ]
        for rows in parts(self.rows(), len(self.tags) * STEPS_A_REQUEST):
            of_host = [rows[host :: len(self.tags)] for host in range(len(self.tags))]
            for hosts in parts(range(len(self.tags)), HOSTS_A_REQUEST):
                message = (
                    remote_write.series(
                        its, [remote_write.sample(values[at], time_s * 1_000) for time_s, _, values in of_host[host]]
                    )
                    for host in hosts
                    for at, its in enumerate(labels[host])
                )
                yield remote_write.body(b"".join(message))


def parts(rows, length):
    """The rows in lists of a length."""
    rows = iter(rows)
    while part := list(itertools.islice(rows, length)):
        yield part


# The questions


@dataclasses.dataclass(frozen=True)
class Question:
    """`function` is max or avg over windows of `step_s`, or raw, last, above 90. No hosts: all of them."""

    function: str
    metrics: tuple
    hosts: tuple
    start: int
    end: int
    step_s: int = 0
    by_host: bool = False
    sql: bool = False


class Kinds:
    """Of each kind of question its name and some of them, with hosts and times drawn at random."""

    def __init__(self, hosts, count, with_last=True):
        draw = random.Random(3)

        def drawn(how_many):
            return tuple(f"host_{host}" for host in draw.sample(range(hosts), min(how_many, hosts)))

        def hour():
            start = START + 60 * draw.randrange((HOURS - 1) * 60 + 1)
            return start, start + 3_600

        def metrics(how_many):
            return tuple(f"cpu_usage_{name}" for name in METRICS[:how_many])

        whole = (START, END)
        of_all = max(3, count // 20)
        self.makers = {
            "single-groupby-1-1-1": (count, lambda: Question("max", metrics(1), drawn(1), *hour(), 60)),
            "single-groupby-5-8-1": (count, lambda: Question("max", metrics(5), drawn(8), *hour(), 60)),
            "cpu-max-all-8": (count, lambda: Question("max", metrics(10), drawn(8), *whole, 3_600)),
            "raw samples of a host": (count, lambda: Question("raw", metrics(1), drawn(1), *hour())),
            "high-cpu-1": (count, lambda: Question("above", metrics(1), drawn(1), *whole, STEP_S, sql=True)),
            "double-groupby-1": (of_all, lambda: Question("avg", metrics(1), (), *whole, 3_600, by_host=True)),
            "double-groupby-all": (of_all, lambda: Question("avg", metrics(10), (), *whole, 3_600, by_host=True)),
            "lastpoint": (of_all, lambda: Question("last", metrics(10), (), *whole)),
            "lastpoint, telem by SQL": (of_all, lambda: Question("last", metrics(10), (), *whole, sql=True)),
            "high-cpu-all": (of_all, lambda: Question("above", metrics(1), (), *whole, STEP_S, sql=True)),
        }
        made = {name: [make() for _ in range(times)] for name, (times, make) in self.makers.items()}
        self.questions = {
            name: questions for name, questions in made.items() if with_last or questions[0].function != "last"
        }

    def mixed(self):
        """What the panels of a dashboard over some hosts ask, in a random order."""
        small = [question for questions in self.questions.values() for question in questions if question.hosts]
        random.Random(5).shuffle(small)
        return small


def iso(time_s):
    return datetime.datetime.fromtimestamp(time_s, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# What is asked. An answer is {(metric, host or "", time in ms): value}; of the last values {(metric, host): value}.


class OnCores:
    """A server on the first so many cores; on all of them where that is 0."""

    cores = 0

    def command(self):
        on = ["taskset", "-c", f"0-{self.cores - 1}"] if self.cores else []
        return [*on, *super().command()]


class ServingTelem(Telem):
    """A telem that takes the data in, or serves it merged."""

    def __init__(self, tools, directory, binary):
        super().__init__(tools, directory)
        self.given = pathlib.Path(binary)
        self.merged = False

    @property
    def binary(self):
        return self.given

    def command(self):
        how = ["replay", self.directory] if self.merged else ["serve", "--data", self.directory]
        return [self.binary, *how, "--listen", f"127.0.0.1:{self.port}"]

    def environment(self):
        # Its socket: beside no other telem's.
        return {"XDG_RUNTIME_DIR": str(self.directory.parent)}

    def load(self, data):
        post_all(self.port, WRITE, data.lines(), {})

    def settle_merged(self):
        self.end_merged()
        self.merged = True


class AskedTelem(OnCores, ServingTelem):
    def request(self, question):
        if question.sql:
            return "POST", "/api/sql", self.sql(question), {}
        if question.function == "last":
            asked = {"queries": [{"metric": metric} for metric in question.metrics], "resolveNames": True}
            return "POST", "/api/query/last", json.dumps(asked), JSON
        if question.hosts:
            matcher = {"type": "literal_or", "filter": "|".join(question.hosts)}
        else:
            matcher = {"type": "wildcard", "filter": "*"}
        matcher |= {"tagk": "hostname", "groupBy": question.by_host}
        query = {"aggregator": question.function, "filters": [matcher]}
        if question.function == "raw":
            query["aggregator"] = "none"
        else:
            query["downsample"] = f"{question.step_s}s-{question.function}"
        queries = [{"metric": metric, **query} for metric in question.metrics]
        asked = {"start": question.start * 1_000, "end": question.end * 1_000 - 1, "queries": queries}
        return "POST", "/api/query", json.dumps(asked), JSON

    @staticmethod
    def sql(question):
        if question.function == "last":
            metrics = ", ".join(f"'{metric}'" for metric in question.metrics)
            return (
                "SELECT metric, tags['hostname'] AS hostname, last(value, ts) AS value FROM samples "
                f"WHERE metric IN ({metrics}) GROUP BY 1, 2"
            )
        hosts = ", ".join(f"'{host}'" for host in question.hosts)
        return (
            f"SELECT ts, hostname, value FROM {question.metrics[0]} WHERE value > 90 AND ts >= '{iso(question.start)}' "
            f"AND ts < '{iso(question.end)}'" + (f" AND hostname IN ({hosts})" if hosts else "")
        )

    def answer(self, question, body):
        rows = json.loads(body)
        if question.function == "last":
            if question.sql:
                return {(row["metric"], row["hostname"]): row["value"] for row in rows}
            return {(row["metric"], row["tags"]["hostname"]): float(row["value"]) for row in rows}
        if question.sql:
            return {(question.metrics[0], row["hostname"], milliseconds(row["ts"])): row["value"] for row in rows}
        of_host = question.by_host or question.function == "raw"
        return {
            (row["metric"], row["tags"]["hostname"] if of_host else "", int(at) * 1_000): value
            for row in rows
            for at, value in row["dps"].items()
        }


class PromQL:
    """What VictoriaMetrics and Prometheus have in common. A window looks back from its last second, as in promql.py."""

    def request(self, question):
        window = f"[{question.step_s * 1_000 - 500}ms]"
        last = question.end - 1
        match question.function:
            case "raw":
                selected = self.select(question.metrics, question.hosts)
                return self.at_once(f"{selected}[{question.end - question.start}s]", last)
            case "last":
                selected = self.select(question.metrics, question.hosts)
                return self.at_once(f"last_over_time({selected}[{HOURS}h])", last)
            case "above":
                selected = self.select(question.metrics, question.hosts)
                return self.ranged(f"{selected} > 90", question.start, question.end - STEP_S, question.step_s)
            case function:
                first = question.start + question.step_s - 1
                return self.ranged(self.grouped(question, function, window), first, last, question.step_s)

    def grouped(self, question, function, window):
        raise NotImplementedError

    @staticmethod
    def select(metrics, hosts):
        name = [] if len(metrics) == 1 else [f'__name__=~"{"|".join(metrics)}"']
        if len(hosts) == 1:
            name.append(f'hostname="{hosts[0]}"')
        elif hosts:
            name.append(f'hostname=~"{"|".join(hosts)}"')
        return (metrics[0] if len(metrics) == 1 else "") + "{" + ",".join(name) + "}"

    def at_once(self, text, time_s):
        return "GET", "/api/v1/query?" + urllib.parse.urlencode({"query": text, "time": time_s, **self.also}), None, {}

    def ranged(self, text, start, end, step):
        asked = {"query": text, "start": start, "end": end, "step": step, **self.also}
        return "GET", "/api/v1/query_range?" + urllib.parse.urlencode(asked), None, {}

    def answer(self, question, body):
        found = {}
        of_host = question.by_host or question.function in ("raw", "above")
        # The time of a window is that of its first second.
        earlier = 0 if question.function in ("raw", "above") else (question.step_s - 1) * 1_000
        for one in json.loads(body)["data"]["result"]:
            labels = one["metric"]
            metric = labels.get("__name__") or labels.get("metric") or question.metrics[0]
            if question.function == "last":
                found[metric, labels["hostname"]] = float(one["value"][1])
                continue
            host = labels["hostname"] if of_host else ""
            for at, value in one["values"]:
                found[metric, host, round(at * 1_000) - earlier] = float(value)
        return found


class AskedVictoriaMetrics(PromQL, OnCores, VictoriaMetrics):
    also = {"nocache": 1}

    def grouped(self, question, function, window):
        selected = self.select(question.metrics, question.hosts)
        by = "__name__, hostname" if question.by_host else "__name__"
        return f"{function}({function}_over_time({selected}{window})) by ({by})"

    def load(self, data):
        post_all(self.port, WRITE, data.lines(), {})

    def settle_merged(self):
        self.end_merged()


class AskedPrometheus(PromQL, OnCores, Prometheus):
    also = {}

    def grouped(self, question, function, window):
        """Functions over time take the name of the metric away, so each metric is asked for by itself."""
        by = " by (hostname)" if question.by_host else ""
        one = (
            f'label_replace({function}{by} ({function}_over_time({self.select((metric,), question.hosts)}{window})), '
            f'"metric", "{metric}", "", "")'
            for metric in question.metrics
        )
        return " or ".join(one)

    def load(self, data):
        post_all(self.port, "/api/v1/write", data.remote(), remote_write.HEADERS)

    def settle_merged(self):
        self.end_merged()


PEERS = {peer.name: peer for peer in (AskedVictoriaMetrics, AskedPrometheus)}


WRITE = "/write?precision=s"


class Writing:
    """Samples that come in, so many a second, while this is open; what that costs the server by itself, in CPU seconds a
    second."""

    #: Of so many steps values are drawn beforehand; they are sent again with later times. Each that is opened begins anew,
    #: so a second one sends times that the first one sent.
    STEPS_MADE = 60
    ALONE_S = 3

    def __init__(self, server, data, samples_a_second):
        self.server = server
        self.bodies = list(data.lines(range(STEPS, STEPS + self.STEPS_MADE)))
        pause_s = self.STEPS_MADE * len(data.tags) * len(METRICS) / len(self.bodies) / samples_a_second
        self.writer = multiprocessing.get_context("fork").Process(target=self.write, args=(pause_s,), daemon=True)

    def write(self, pause_s):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=ANSWER_S)
        due = time.perf_counter()
        for round_ in itertools.count():
            later = round_ * self.STEPS_MADE * STEP_S
            for body in self.bodies:
                lines = body.decode().splitlines() if later else ()
                moved = (f"{line[:-10]}{int(line[-10:]) + later}\n" for line in lines)
                ask(connection, ("POST", WRITE, "".join(moved).encode() if later else body, {}))
                due += pause_s
                time.sleep(max(0, due - time.perf_counter()))

    def __enter__(self):
        self.writer.start()
        time.sleep(1)
        before, began = self.server.process.cpu_s(), time.perf_counter()
        time.sleep(self.ALONE_S)
        self.cpu_share = (self.server.process.cpu_s() - before) / (time.perf_counter() - began)
        return self

    def __exit__(self, *_):
        self.writer.kill()
        self.writer.join()


class NotWriting:
    """Nothing comes in."""

    cpu_share = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def post_all(port, path, bodies, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    for body in bodies:
        ask(connection, ("POST", path, body, headers))
    connection.close()


def ask(connection, request):
    method, path, body, headers = request
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status not in (200, 204):
        raise Failed(f"{method} {urllib.parse.unquote_plus(path)[:300]}: {answer.status} {said[:300]!r}")
    return said


# The measurement


class Subject:
    """One that is asked, and what it took."""

    def __init__(self, label, server, writing=None):
        self.label, self.server = label, server
        #: Makes what writes into it meanwhile; without one it is merged, and restarted for each round.
        self.writing = writing
        #: Of each kind, of each round: processor and wall milliseconds a question.
        self.cpu, self.wall = {}, {}
        self.busy = []

    def begin(self):
        if not self.writing:
            self.server.start()
            self.server.process.settle()
        return http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=ANSWER_S)

    def end(self):
        if not self.writing:
            self.server.stop()

    def close(self):
        """In order: one that counts its own code, as ./release has it do, writes that at its end."""
        if self.writing:
            self.server.stop()

    def ask_all(self, kinds, answers, first_label):
        """Every question of every kind; its first answers are compared with those of the first that was asked."""
        connection = self.begin()
        with self.writing() if self.writing else NotWriting() as written:
            self.ask_each(connection, kinds, answers, first_label, written.cpu_share)
        connection.close()
        self.end()

    def ask_each(self, connection, kinds, answers, first_label, cpu_share):
        for name, questions in kinds.questions.items():
            requests = [self.server.request(question) for question in questions]
            for at, request in enumerate(requests[:WARM]):
                found = self.server.answer(questions[at], ask(connection, request))
                expected = answers.setdefault((name, at), found)
                if differs := compare(expected, found):
                    raise Failed(f"{name}: {self.label} answers other than {first_label}: {differs}")
            before, walls, all_began = self.server.process.cpu_s(), [], time.perf_counter()
            for request in requests:
                began = time.perf_counter()
                ask(connection, request)
                walls.append((time.perf_counter() - began) * 1e3)
            others_s = cpu_share * (time.perf_counter() - all_began)
            cpu_ms = (self.server.process.cpu_s() - before - others_s) * 1e3 / len(requests)
            self.cpu.setdefault(name, []).append(cpu_ms)
            self.wall.setdefault(name, []).append(statistics.median(walls))
            machine.say(f"{name:24}{cpu_ms:9.3f} CPU ms{self.wall[name][-1]:9.3f} ms  {self.label}")

    def ask_at_once(self, kinds, clients, seconds):
        """Several clients, each with the questions of a dashboard one after the other."""
        self.begin().close()
        with self.writing() if self.writing else NotWriting() as written:
            self.busy.append(self.throughput(kinds, clients, seconds, written.cpu_share))
        said = ", ".join(f"{name} {value:.2f}" for name, value in self.busy[-1].items())
        machine.say(f"{clients} clients: {said}  {self.label}")
        self.end()

    def throughput(self, kinds, clients, seconds, cpu_share):
        requests = [self.server.request(question) for question in kinds.mixed()]
        before, began = self.server.process.cpu_s(), time.perf_counter()
        work = [(self.server.port, requests, seconds, at) for at in range(clients)]
        with multiprocessing.get_context("fork").Pool(clients, signal.signal, (signal.SIGTERM, signal.SIG_DFL)) as pool:
            walls = sorted(itertools.chain.from_iterable(pool.starmap(client, work)))
        took = time.perf_counter() - began
        return {
            "questions a second": len(walls) / took,
            "p50 ms": walls[len(walls) // 2],
            "p99 ms": walls[math.ceil(len(walls) * 0.99) - 1],
            "CPU ms a question": (self.server.process.cpu_s() - before - cpu_share * took) * 1e3 / len(walls),
        }


def client(port, requests, seconds, at):
    """One of several clients: milliseconds of each answer, for some seconds, each from another place in the mix."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    walls, until = [], time.perf_counter() + seconds
    for request in itertools.islice(itertools.cycle(requests), at * 97, None):
        began = time.perf_counter()
        if began >= until:
            return walls
        ask(connection, request)
        walls.append((time.perf_counter() - began) * 1e3)


def said(subjects, figure):
    """A figure of all subjects, and the first one's over each other's."""
    values = [figure(subject) for subject in subjects]
    ratios = [f"{values[0] / value:.2f}x" if value else "" for value in values[1:]]
    return [number(values[0]), *(cell for pair in zip(map(number, values[1:]), ratios) for cell in pair)]


def report(subjects, kinds, clients):
    def head(what):
        rest = (cell for subject in subjects[1:] for cell in (f"{what} {subject.label}", "ratio"))
        return [f"{what} {subjects[0].label}", *rest]

    rows = []
    for name in kinds.questions:
        cpu = said(subjects, lambda subject: statistics.median(subject.cpu[name]))
        wall = said(subjects, lambda subject: statistics.median(subject.wall[name]))
        rows.append([f"`{name}`", *cpu, *wall])
    print(table(["milliseconds a question", *head("CPU"), *head("wall")], rows))
    if clients:
        rows = []
        for name in subjects[0].busy[0]:
            values = said(subjects, lambda subject: statistics.median(of_round[name] for of_round in subject.busy))
            rows.append([name, *values])
        print(table([f"{clients} clients at once", *head("")], rows))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("telem", nargs="+", help="a binary of telem; of several each is asked in turn")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME[=PATH]",
        help=f"a database beside it: {' or '.join(PEERS)}, or such a binary",
    )
    parser.add_argument("--rounds", type=int, default=3, help="[3]")
    parser.add_argument("--questions", type=int, default=300, help="of a kind; a 20th of those over all hosts [300]")
    parser.add_argument("--hosts", type=int, default=400, help="how many there are [400]")
    parser.add_argument("--clients", type=int, default=0, help="then so many at once ask a mix for a while [0]")
    parser.add_argument("--cores", type=int, default=0, help="each server has so many, the first ones [all]")
    parser.add_argument(
        "--writing", type=int, default=0, metavar="N", help="samples a second that come in meanwhile; nothing is merged [0]"
    )
    parser.add_argument("--seconds", type=float, default=10, help="how long they ask in each round [10]")
    binaries.options(parser)
    return parser.parse_args()


def subjects_of(given, folder):
    """telem and the others, with the data in them."""
    paths = dict(given.binary)
    for peer in given.peer:
        name, _, path = peer.partition("=")
        if name not in PEERS:
            raise Failed(f"--peer {name}: there are {', '.join(PEERS)}")
        if path:
            paths[name] = path
    tools = binaries.Binaries(given.source, dict(given.version), paths)
    peers = [PEERS[peer.partition("=")[0]] for peer in dict.fromkeys(given.peer)]
    for peer in peers:
        tools.binary(peer.name)
    OnCores.cores = given.cores
    subjects = []
    for at, path in enumerate(given.telem):
        # All builds are asked about the same files, unless these are written meanwhile.
        server = AskedTelem(tools, folder / (f"telem-{at}" if given.writing else "telem"), path)
        writing = None
        if at == 0 or given.writing:
            writing = load(server, given)
        server.merged = not given.writing
        subjects.append(Subject("telem" if len(given.telem) == 1 else path, server, writing))
    for peer in peers:
        server = peer(tools, folder / peer.name)
        subjects.append(Subject(SHORT[peer.name], server, load(server, given)))
        machine.say(f"{SHORT[peer.name]}: {tools.versions[peer.name]}")
        print(f"{SHORT[peer.name]}: {tools.versions[peer.name]}")
    return subjects


def load(server, given):
    """What writes into it later; None where it ends merged."""
    machine.say(f"loading {server.name}")
    if not given.writing:
        server.prepare_to_merge()
    server.start()
    data = Data(given.hosts)
    server.load(data)
    if not given.writing:
        server.settle_merged()
        return None
    return functools.partial(Writing, server, data, given.writing)


def main():
    given = options()
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda received, _: sys.exit(f"stopped by {signal.Signals(received).name}"))
    kinds = Kinds(given.hosts, given.questions, with_last=not given.writing)
    loads = [machine.load_average()]
    with tempfile.TemporaryDirectory(prefix="telem-dashboard-") as folder:
        try:
            subjects = subjects_of(given, pathlib.Path(folder))
            answers = {}
            for at in range(given.rounds):
                # Nobody is always first.
                turn = subjects[at % len(subjects) :] + subjects[: at % len(subjects)]
                for subject in turn:
                    subject.ask_all(kinds, answers, turn[0].label)
                    loads.append(machine.load_average())
                for subject in turn if given.clients else []:
                    subject.ask_at_once(kinds, given.clients, given.seconds)
                    loads.append(machine.load_average())
            for subject in subjects:
                subject.close()
        finally:
            Process.kill_all()
    print(f"{given.hosts} hosts; medians of {given.rounds} rounds; load average {min(loads)} to {max(loads)}\n")
    report(subjects, kinds, given.clients)


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError, http.client.HTTPException, subprocess.SubprocessError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped")
