"""Tables and a plot of what was measured: figures.md and figures.png, made of nothing but figures.json."""

import statistics

from .questions import TEXT

TELEM = "telem"
BEFORE = "telem-before"
DUCK_PARQUET = "duckdb on telem's Parquet"
#: Order and colours of the databases.
COLOURS = {
    TELEM: "#d62728",
    BEFORE: "#f2a5a5",
    "victoria-metrics": "#1f77b4",
    "prometheus": "#ff7f0e",
    "influxdb": "#9467bd",
    "questdb": "#2ca02c",
    "clickhouse": "#17becf",
    "duckdb": "#bcbd22",
    DUCK_PARQUET: "#e3d18a",
    "sqlite": "#7f7f7f",
}
SHORT = {
    TELEM: "telem",
    BEFORE: "telem, before",
    "victoria-metrics": "VictoriaMetrics",
    "prometheus": "Prometheus",
    "influxdb": "InfluxDB",
    "questdb": "QuestDB",
    "clickhouse": "ClickHouse (chDB)",
    "duckdb": "DuckDB",
    DUCK_PARQUET: "DuckDB on telem's Parquet",
    "sqlite": "SQLite, Dragon's schema",
}

#: What the design set out for, measured on a machine like this: best peer, physical limit, aim. Of the aim: at most this,
#: and at most this times VictoriaMetrics, or whom `BESIDE` names, in the same run.
AIMS = {
    "lines": ("line protocol, flushed: CPU-s/M", "0.53-0.62", "0.08-0.10", 0.15, 0.25),
    "put": ("put, flushed: CPU-s/M", "0.76-0.88", "0.15-0.19", None, 0.33),
    "arrays": ("arrays in process: CPU-s/M", "0.14", "", None, 0.6),
    "aligned": ("bytes a sample, aligned", "1.08 (lossy)", "1.10", 1.12, None),
    "jittered": ("bytes a sample, jittered", "1.55", "1.25", 1.5, None),
    "recording": ("bytes a sample, real recording", "1.52", "0.50", 0.6, None),
    "q1": ("q1 CPU ms", "0.5-1", "0.2", 1, None),
    "q2": ("q2 CPU ms", "4.5-6", "0.7", 2.5, 0.5),
    "q3": ("q3 CPU ms", "6-8", "2", 4, None),
    "q4": ("q4 CPU ms", "19-22", "4", 10, None),
    "q5": ("q5 CPU ms", "69", "memory", 10, None),
    "q6": ("q6 CPU ms", "4.9", "3", 4, None),
    "q7": ("q7 CPU ms", "14.7", "3 + output", 8, None),
    "q8": ("q8 CPU ms", "", "", None, 0.5),
    "memory": ("resident MB under load, at most", "131-187", "", 128, None),
}


BESIDE = {"arrays": "duckdb"}

#: The questions under the bars of the plot.
PLOTTED = [
    "one series\nraw",
    "hosts' avg\nby 1 min",
    "host's max\nby 5 min",
    "5 metrics\nby 1 min",
    "last of\nall series",
    "p99 of a\nmetric",
    "values\nabove 90",
    "host's avg\nby 1 min",
]


class Spread:
    """Several measurements of one thing."""

    def __init__(self, values):
        self.values = sorted(values)

    def __bool__(self):
        return bool(self.values)

    @property
    def median(self):
        return statistics.median(self.values)

    def text(self):
        if not self.values:
            return ""
        if len(self.values) == 1:
            return number(self.median)
        return f"{number(self.median)} ({number(self.values[0])}-{number(self.values[-1])})"


def number(value):
    """Three digits that count."""
    if value == 0:
        return "0"
    digits = 3 - len(f"{abs(value):.0f}") if abs(value) >= 1 else 3 if abs(value) < 0.1 else 2
    return f"{value:.{max(digits, 0)}f}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


class Figures:
    """Questions to figures.json."""

    def __init__(self, figures):
        self.all = figures

    def ingest(self, peer, protocol, key):
        """CPU-seconds a million samples, of each round."""
        rounds = [one for one in self.all["ingest"] if (one["peer"], one["protocol"]) == (peer, protocol)]
        return Spread(one[key] / one["samples"] * 1e6 for one in rounds if key in one)

    def ingest_kinds(self):
        return sorted(
            {(one["peer"], one["protocol"]) for one in self.all["ingest"]}, key=lambda kind: (place(kind[0]), kind[1])
        )

    def sizes(self, name):
        return {one["peer"]: one["bytes_a_sample"] for one in self.all["sizes"] if one["set"] == name}

    def asked(self, peer, question, key="cpu_ms"):
        return Spread(one[key] for one in self.all["asked"] if (one["peer"], one["question"]) == (peer, question))

    def cold(self, peer, question):
        return Spread(one["wall_ms"] for one in self.all["cold"] if (one["peer"], one["question"]) == (peer, question))

    def asked_peers(self):
        return sorted({one["peer"] for one in self.all["asked"]}, key=place)

    def memory(self, peer):
        """Most resident memory while the whole aligned set came in."""
        found = [
            one["memory"]["peak_mb"] for one in self.all["sizes"] if one["set"] == "aligned" and one["peer"] == peer
        ]
        return found[0] if found else None


def place(peer):
    return list(COLOURS).index(peer)


def best(values):
    """The least of other databases: (name, value)."""
    others = {peer: value for peer, value in values.items() if peer not in (TELEM, BEFORE)}
    return min(others.items(), key=lambda one: one[1]) if others else (None, None)


def compared(figures):
    """Of each aim: name, telem's figure, the best peer's, its name."""
    f = Figures(figures)
    for key in AIMS:
        if key in ("lines", "put"):
            medians = {}
            for peer, protocol in f.ingest_kinds():
                # Who takes no lines has one protocol of its own to be compared by.
                if protocol == key or (key == "lines" and protocol == "remote"):
                    medians[peer] = f.ingest(peer, protocol, "flushed_cpu_s").median
        elif key == "arrays":
            loads = {peer: one["load"] for peer, one in figures["embedded"].items() if peer != "sqlite"}
            medians = {peer: load["cpu_s"] / load["samples"] * 1e6 for peer, load in loads.items()}
        elif key in ("aligned", "jittered", "recording"):
            medians = f.sizes(key)
        elif key == "memory":
            medians = {peer: f.memory(peer) for peer in f.sizes("aligned")}
        else:
            medians = {peer: f.asked(peer, key).median for peer in f.asked_peers() if f.asked(peer, key)}
        if TELEM in medians:
            name, value = best(medians)
            yield key, medians[TELEM], name, value, medians


def summary(figures):
    """telem against the best other of the same run, and against what was aimed at."""
    f = Figures(figures)
    rows, lost = [], []
    for key, ours, name, theirs, medians in compared(figures):
        text, designed, limit, most, most_ratio = AIMS[key]
        ratio = ours / theirs if theirs else None
        wanted = [f"<= {most:g}"] if most else []
        met = not most or ours <= most
        if most_ratio:
            beside = BESIDE.get(key, "victoria-metrics")
            wanted.append(f"<= {most_ratio:g}x {SHORT[beside]}")
            met = met and (beside not in medians or ours <= most_ratio * medians[beside])
        shown = f"{number(theirs)} ({SHORT[name]})" if theirs else ""
        wall, wall_lost = walls(f, key, medians)
        rows.append(
            [
                text,
                f"**{number(ours)}**",
                shown,
                f"{ratio:.2f}" if ratio else "",
                wall,
                designed,
                limit,
                " and ".join(wanted),
                "yes" if met else "**no**",
            ]
        )
        if ratio and ratio > 1:
            lost.append(f"{text}: {number(ours)}, {SHORT[name]} {number(theirs)} ({ratio:.2f}x)")
        if wall_lost:
            lost.append(f"{key} wall ms: {wall}")
    measured = ["figure", "telem", "best other, same run", "ratio", "wall ms: telem, best other, ratio"]
    return table([*measured, "best other when designed", "limit", "aim", "met"], rows), lost


def walls(f, key, peers):
    """Of a question: wall time of telem, the best other's and their ratio, as text; and whether telem loses by it."""
    medians = {peer: f.asked(peer, key, "wall_ms").median for peer in peers if f.asked(peer, key, "wall_ms")}
    name, theirs = best(medians)
    if not theirs or TELEM not in medians:
        return "", False
    ours = medians[TELEM]
    return f"**{number(ours)}**, {number(theirs)} ({SHORT[name]}), {ours / theirs:.2f}", ours > theirs


def markdown(figures):
    f = Figures(figures)
    parts = [heading(figures), taking_in(figures, f), on_disk(figures, f), asking(figures, f), before(f)]
    return "\n".join(line for part in parts for line in part) + "\n"


def heading(figures):
    machine, plan = figures["machine"], figures["plan"]
    measured = figures["ingest"] + figures["asked"]
    loads = [one[key] for one in measured for key in ("load_before", "load_after") if key in one]
    versions = (f"{SHORT[peer]}: {version}" for peer, version in figures["versions"].items())
    rows, lost = summary(figures)
    text = [
        "# telem beside other databases\n",
        f"{figures['began']} to {figures.get('ended', '?')} on {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gb']} GB, {machine['system']}, Linux {machine['kernel']}; load average {min(loads, default=0)} to "
        f"{max(loads, default=0)} before and after rounds. {plan['hosts']} hosts x 50 series. Medians over rounds (least-most).\n",
        "; ".join(versions) + ".\n",
        "## Against the best other, and what was aimed at\n",
        rows,
    ]
    if plan["asked_s"] < 3_600:
        text.append("Little data was used: limits and aims are those for an hour of 100 hosts.\n")
    for failed in figures.get("failed", []):
        text.append(f"* **{failed['peer'] or 'The run'} did not go on ({failed['what']}): {failed['why']}**\n")
    text.append("Where telem loses to the best other of this run:\n" if lost else "In this run telem loses nowhere.\n")
    return text + [f"* {line}" for line in lost] + [""]


def taking_in(figures, f):
    rows = []
    for peer, protocol in f.ingest_kinds():
        rounds = [one for one in figures["ingest"] if (one["peer"], one["protocol"]) == (peer, protocol)]
        cells = [f.ingest(peer, protocol, key).text() for key in ("loaded_cpu_s", "flushed_cpu_s", "merged_cpu_s")]
        reference = f.ingest("victoria-metrics", "put" if protocol == "put" else "lines", "flushed_cpu_s")
        flushed = f.ingest(peer, protocol, "flushed_cpu_s").median
        ratio = f"{flushed / reference.median:.2f}" if reference else ""
        rate = Spread(one["samples"] / one["seconds"] / 1e6 for one in rounds).text()
        memory = (number(statistics.median(one["memory"][key] for one in rounds)) for key in ("now_mb", "peak_mb"))
        samples = f"{len(rounds)} x {rounds[0]['samples'] / 1e6:g} M"
        rows.append([SHORT[peer], protocol, *cells, ratio, rate, "/".join(memory), samples])
    arrays = "arrays, in process"
    for peer, how in (("telem", arrays), ("duckdb", arrays), ("clickhouse", arrays), ("sqlite", "rows, in process")):
        figure = figures["embedded"].get(peer)
        if figure:
            load, million = figure["load"], figure["load"]["samples"] / 1e6
            taken = number(load["cpu_s"] / million)
            merged = number((load["cpu_s"] + figure["merge"]["cpu_s"]) / million) if "merge" in figure else ""
            memory = f"{number(figure['memory']['now_mb'])}/{number(figure['memory']['peak_mb'])}"
            rows.append(
                [
                    SHORT[peer],
                    how,
                    taken,
                    taken,
                    merged,
                    "",
                    number(million / load["seconds"]),
                    memory,
                    f"{million:g} M",
                ]
            )
    head = ["", "protocol", "to the last answer", "flushed", "merged", "flushed / VictoriaMetrics", "M samples/s"]
    clients = []
    for protocol, sent in figures["client"].items():
        cpu, rate = number(sent["client_cpu_s"] / sent["samples"] * 1e6), sent["samples"] / sent["seconds"] / 1e6
        clients.append(f"{protocol} {cpu} CPU-s/M and {rate:.1f} M samples/s")
    return [
        "## Taking samples in: server CPU-seconds for a million\n",
        table([*head, "RSS MB now/peak", "samples"], rows),
        "The client into a server that answers and keeps nothing: " + "; ".join(clients) + ".\n",
    ]


def on_disk(figures, f):
    names = ["aligned", "jittered", "recording"]
    peers = sorted({one["peer"] for one in figures["sizes"]}, key=place)
    rows = []
    for peer in peers:
        sizes = {name: f.sizes(name).get(peer) for name in names}
        rows.append([SHORT[peer], *(number(size) if size else "" for size in sizes.values())])
    for peer, figure in figures["embedded"].items():
        samples, taken = figure["load"]["samples"], figure["bytes"]
        if isinstance(taken, dict):
            both = f"{number(taken['sorted'] / samples)} ({number(taken['arrived'] / samples)})"
            how = "floats appended in process, merged (flushed)" if peer == TELEM else "sorted (as it arrived)"
            rows.append([f"{SHORT[peer]}, {how}", both, "", ""])
        else:
            rows.append([SHORT[peer], number(taken / samples), "", ""])
    text = [
        "## Bytes a sample, merged\n",
        table(["", *(f"{name}, {samples_of(figures, name)}" for name in names)], rows),
    ]
    checked = [one for one in figures["sizes"] if "lossless" in one]
    appended = figures["embedded"].get(TELEM)
    if appended:
        checked.append({"set": "what was appended in process", **appended})
    strange = [one for one in checked if not one["lossless"]["same"]]
    if checked and not strange:
        text.append("What telem exports of each set is what was sent, to the last bit.\n")
    return text + [f"* **telem's export of {one['set']} differs: {one['lossless']}**\n" for one in strange]


def asking(figures, f):
    peers = f.asked_peers()
    rows = []
    for question, words in TEXT.items():
        cells = []
        for peer in peers:
            cpu, wall = f.asked(peer, question), f.asked(peer, question, "wall_ms")
            cells.append(f"{cpu.text()} / {number(wall.median)}" if cpu else "")
        rows.append([f"{question}: {words}", *cells])
    text = ["## Questions: server CPU ms / wall ms\n", table(["", *(SHORT[peer] for peer in peers)], rows)]
    dragon = figures["embedded"].get("sqlite")
    if dragon:
        asked = dragon["asked"]
        cpu = asked["cpu_s"] / len(asked["walls"]) * 1e3
        text.append(
            f"Dragon's own SELECT for one metric in {dragon['load']['samples']:,} samples: {number(cpu)} CPU ms "
            f"({asked['values']} rows out).\n"
        )
    if figures["cold"]:
        text.append("Cold: wall ms of the first question after a restart with no data in the page cache.\n")
        peers = sorted({one["peer"] for one in figures["cold"]}, key=place)
        rows = [[question, *(f.cold(peer, question).text() for peer in peers)] for question in TEXT]
        text.append(table(["", *(SHORT[peer] for peer in peers)], rows))
    wrong = []
    for peer, answers in figures["answers"].items():
        wrong += [f"* {SHORT[peer]} {name}: {said['differs']}" for name, said in answers.items() if said["differs"]]
    if figures["answers"]:
        judged = ", ".join(SHORT[peer] for peer in figures["answers"])
        found = "these differ:\n" if wrong else "none differs.\n"
        how = "was compared with DuckDB's on the Parquet that telem exported, value by value"
        text += [f"Every answer of {judged} {how}: {found}", *wrong]
    return text


def before(f):
    """telem over another build of it, measured by turns: what got slower."""
    rows = []
    for protocol in ("lines", "put"):
        now, then = (f.ingest(peer, protocol, "flushed_cpu_s") for peer in (TELEM, BEFORE))
        rows.append((f"{protocol}, flushed: CPU-s/M", now, then))
    rows += [(f"{question}: CPU ms", f.asked(TELEM, question), f.asked(BEFORE, question)) for question in TEXT]
    rows = [[name, now.text(), then.text(), f"{now.median / then.median:.2f}"] for name, now, then in rows if now and then]
    head = ["median (least-most)", SHORT[TELEM], SHORT[BEFORE], "ratio"]
    return ["## Beside another build of telem\n", table(head, rows)] if rows else []


def samples_of(figures, name):
    found = [one["samples"] for one in figures["sizes"] if one["set"] == name]
    return f"{found[0] / 1e6:.3g} M" if found else ""


def plot(figures, out):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    f = Figures(figures)
    pyplot.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    picture, (left, middle, right) = pyplot.subplots(1, 3, figsize=(14, 4.2), width_ratios=[1.1, 1.1, 2.2])

    kinds = {"line protocol\n(Prometheus: remote write)": ("lines", "remote"), "OpenTSDB put": ("put",)}
    values = [
        {peer: f.ingest(peer, kind, "flushed_cpu_s").median for peer, kind in f.ingest_kinds() if kind in those}
        for those in kinds.values()
    ]
    bars(left, kinds, values)
    left.set_title("taking samples in:\nserver CPU-seconds a million, flushed")

    names = {"synthetic,\naligned": "aligned", "synthetic,\njittered": "jittered", "a real\nmachine": "recording"}
    bars(middle, names, [f.sizes(name) for name in names.values()])
    middle.set_title("on disk:\nbytes a sample, merged")

    values = [{peer: f.asked(peer, q).median for peer in f.asked_peers() if f.asked(peer, q)} for q in TEXT]
    bars(right, PLOTTED, values, texts=False)
    right.set_yscale("log")
    right.set_title("questions:\nserver CPU milliseconds (logarithmic)")

    shown = {peer for panel in values for peer in panel} | {peer for peer, _ in f.ingest_kinds()}
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=COLOURS[peer]) for peer in COLOURS if peer in shown]
    labels = [SHORT[peer] for peer in COLOURS if peer in shown]
    picture.legend(handles, labels, loc="lower left", ncols=len(labels), frameon=False)
    plan = figures["plan"]
    picture.tight_layout(rect=(0, 0.08, 1, 0.95))
    said = f"less is better; {plan['hosts']} hosts x 50 series x {plan['asked_s']} s"
    # At the top: below, the names of all databases take the whole width.
    picture.text(0.995, 0.965, said, ha="right", color="#666666")
    picture.savefig(out, dpi=130)
    pyplot.close(picture)


def bars(axis, names, groups, texts=True):
    """A group of bars for each name, a bar for each database."""
    most = max((len(group) for group in groups), default=1)
    width = 0.85 / max(most, 1)
    for at, group in enumerate(groups):
        for number_in_group, peer in enumerate(sorted(group, key=place)):
            x = at + (number_in_group - (len(group) - 1) / 2) * width
            axis.bar(x, group[peer], width * 0.95, color=COLOURS[peer])
            if texts:
                axis.text(x, group[peer], number(group[peer]), ha="center", va="bottom", fontsize=6)
    axis.set_xticks(range(len(names)), names)
    axis.tick_params(axis="x", length=0)


def write(figures, out):
    (out / "figures.md").write_text(markdown(figures))
    if figures["sizes"] or figures["asked"]:
        plot(figures, out / "figures.png")
