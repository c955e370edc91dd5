#!/usr/bin/env python3
"""What a release is to be fast at, done once by an instrumented telem: ./release measures with it what runs how often.

    benches/train.py TELEM                 a minute and a half
    benches/train.py TELEM --counts DIR    what TELEM counts goes into a folder for each activity, in their order
    benches/train.py TELEM --quick         seconds: does it work here?

All parts of the product that carry samples or answers take their turn: samples by line protocol, put, the client
protocol and collectors; dashboards' questions and SQL in memory, from files and over nodes; merging, export, import and
replay; clients of Metric Proxy. What never runs here is made small instead of fast, and what only one activity needs
lies apart from what others do. Needs Python alone; servers listen on loopback and are ended.
"""

import argparse
import dataclasses
import gzip
import http.client
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
START, STEP_S = 1_767_225_600, 10
METRICS = 20
PATIENCE_S = 300
JSON = {"Content-Type": "application/json"}


@dataclasses.dataclass(frozen=True)
class Amount:
    """How much of everything. Each question of a dashboard is asked so often."""

    hosts: int
    steps: int
    asked: int


WHOLE, QUICK = Amount(60, 360, 30), Amount(6, 12, 3)


def run(*command, **more):
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, timeout=PATIENCE_S, stdout=subprocess.DEVNULL, **more)


class Activities:
    """Each has a folder for what the processes count that are started in it."""

    def __init__(self, counts):
        self.counts, self.begun = counts, 0

    def begin(self, name):
        print(f"-- {name}", flush=True)
        if self.counts:
            # Four files, which processes of one kind add up in.
            os.environ["LLVM_PROFILE_FILE"] = str(self.counts / f"{self.begun:02}-{name}" / "%4m.profraw")
        self.begun += 1


class Server:
    """A telem that listens, until the end of a `with`."""

    def __init__(self, *command):
        print("$", *command, flush=True)
        self.process = subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"listening on http://(127\.0\.0\.1:\d+)", line):
                self.address = found[1]
                break
        else:
            raise SystemExit(f"{command[0]} does not listen: exit status {self.process.wait()}")
        # What it says later is read, or it would wait for that.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise

    def ask(self, path, body=None, headers=None):
        self.connection.request("GET" if body is None else "POST", path, body, headers or {})
        answer = self.connection.getresponse()
        told = answer.read()
        if answer.status >= 300:
            raise SystemExit(f"{path}: {answer.status} {told[:300]}")
        return told


def rows(amount, jitter_ms):
    """Time in ms, metric, host and value: walks with two decimals, counters and memory in pages."""
    draw = random.Random(jitter_ms)
    values = [[draw.uniform(0, 100) for _ in range(METRICS)] for _ in range(amount.hosts)]
    for step in range(amount.steps):
        for host, of_host in enumerate(values):
            time_ms = (START + step * STEP_S) * 1_000 + (draw.randrange(jitter_ms) if jitter_ms else 0)
            for metric in range(METRICS):
                match metric % 3:
                    case 0:
                        of_host[metric] = round(of_host[metric] + draw.gauss(0, 1), 2)
                    case 1:
                        of_host[metric] = int(of_host[metric]) + draw.randrange(50_000)
                    case 2:
                        of_host[metric] = 4_096 * draw.randrange(8_000)
                yield time_ms, f"m{metric}", f"h{host}", of_host[metric]


def parts(items, length):
    part = []
    for item in items:
        part.append(item)
        if len(part) == length:
            yield part
            part = []
    if part:
        yield part


def load(server, amount):
    """The same by two protocols, packed and plain."""
    for at, part in enumerate(parts(rows(amount, 0), 2_000)):
        lines = "".join(f"{m},host={h} value={v}{'i' if isinstance(v, int) else ''} {t}\n" for t, m, h, v in part)
        body = lines.encode()
        packed = {"Content-Encoding": "gzip"} if at % 4 == 0 else {}
        server.ask("/write?precision=ms", gzip.compress(body, 1) if packed else body, packed)
    for part in parts(rows(amount, 900), 500):
        points = [{"metric": f"put.{m}", "timestamp": t, "value": v, "tags": {"host": h}} for t, m, h, v in part]
        server.ask("/api/put?details", json.dumps(points).encode(), JSON)


def dashboard(server, amount):
    """What panels ask, each time of others."""
    draw = random.Random(5)
    every = {"tagk": "host", "type": "wildcard", "filter": "*", "groupBy": True}
    for _ in range(amount.asked):
        metric = f"{draw.choice(['', 'put.'])}m{draw.randrange(METRICS)}"
        host = {"tagk": "host", "type": "literal_or", "filter": f"h{draw.randrange(amount.hosts)}", "groupBy": False}
        for queries in (
            [{"metric": metric, "aggregator": "none", "filters": [host]}],
            [{"metric": metric, "aggregator": "avg", "downsample": "1m-avg"}],
            [{"metric": metric, "aggregator": "max", "downsample": "5m-max", "filters": [every]}],
            [{"metric": metric, "aggregator": "avg", "downsample": "1m-avg", "filters": [every]}],
            [{"metric": metric, "aggregator": "sum", "downsample": "1m-first", "rate": True}],
            [{"metric": metric, "aggregator": "p95", "downsample": "5m-p99"}],
            [{"metric": f"m{at}", "aggregator": "avg", "downsample": "1m-avg"} for at in range(5)],
        ):
            asked = {"start": START * 1_000, "end": (START + 3_600) * 1_000 - 1, "queries": queries}
            server.ask("/api/query", json.dumps(asked), JSON)
        server.ask("/api/query/last", json.dumps({"queries": [{"metric": metric}], "resolveNames": True}), JSON)
        server.ask("/api/suggest?type=metrics&max=100")


def ask_sql(server, amount):
    for sql in (
        "SELECT quantile_cont(value, 0.99) AS p99 FROM m3",
        "SELECT ts, host, value FROM m0 WHERE value > 90",
        "SELECT ts, host, value FROM m3 WHERE value > 90 AND host = 'h7' ORDER BY ts LIMIT 100",
        "SELECT host, max(value), avg(value), count(*) FROM m6 GROUP BY host ORDER BY 2 DESC",
        "SELECT time_bucket('1m', ts) AS t, avg(value) FROM m0 WHERE host IN ('h1', 'h2') GROUP BY 1 ORDER BY 1",
        "SELECT metric, tags['host'] AS host, last(value, ts) FROM samples GROUP BY 1, 2",
        "SELECT metric, count(*) AS samples, round(avg(value), 4) AS average FROM samples GROUP BY 1 ORDER BY 2",
        "SELECT a.ts, a.value - b.value FROM m0 a JOIN m0 b ON a.ts = b.ts WHERE a.host = 'h1' AND b.host = 'h2'",
    ):
        for _ in range(amount.asked // 3):
            server.ask("/api/sql", sql)
        server.ask("/api/sql?format=csv", sql)


def train(telem, amount, place, begin):
    """What every telem does comes first, and what few do last."""
    data, saved, client = place / "data", place / "saved", {"PYTHONPATH": str(HERE.parent / "clients/python")}

    def serve(directory):
        return Server(telem, "serve", "--data", directory, "--listen", "127.0.0.1:0", "--level", "2")

    begin("samples")
    with serve(data) as server:
        load(server, amount)
    if amount is WHOLE:
        # Before all that keeps jobs, too: whoever only counts needs little. Two hundred jobs that end are more than a
        # list sorts in one piece.
        begin("ended-jobs")
        run(HERE / "proxy/server.py", telem, "--rows", "finished")
    begin("questions")
    with serve(place / "asked") as server:
        load(server, amount)
        dashboard(server, amount)
    begin("jobs")
    # A job with a client that steers itself, and one of three nodes.
    job = [sys.executable, HERE.parent / "examples/ai_in_the_loop.py", "--quick"]
    often = ("--level", "4", "--interval", "200ms")
    run(telem, "run", *often, "--save", saved, "--", *job, env={**os.environ, **client})
    pause = "1" if amount is QUICK else "5"
    nodes = ("--local", "3", "--level", "2", "--interval", "100ms", "--save", place / "nodes")
    run(telem, "run", *nodes, "--", "sleep", pause)
    begin("sql")
    with serve(place / "asked by SQL") as server:
        load(server, amount)
        ask_sql(server, amount)
    begin("saved")
    for command in (["info"], ["check"], ["compact"], ["ls"], ["export", "-o", place / "all.parquet"]):
        run(telem, command[0], data, *command[1:])
    run(telem, "import", place / "all.parquet", "--save", place / "imported")
    with Server(telem, "replay", data, "--listen", "127.0.0.1:0") as server:
        dashboard(server, amount)
        ask_sql(server, amount)
    for question in ("SELECT host, max(value) FROM node_load1 GROUP BY host", "SELECT * FROM metrics"):
        run(telem, "sql", place / "nodes", question)


def measure(telem, begin):
    """What else is measured, a little of each."""
    begin("counters")
    run(HERE / "proxy/server.py", telem, "--quick")
    begin("measured")
    run(HERE / "dashboard.py", telem, "--rounds", 1, "--questions", 100, "--hosts", 200)
    writing = ["--writing", 20_000, "--clients", 2, "--seconds", 4]
    run(HERE / "dashboard.py", telem, "--rounds", 1, "--questions", 40, "--hosts", 200, *writing)
    run(HERE / "frames.py", "--telem", telem, "--samples", 300_000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("telem", type=pathlib.Path)
    parser.add_argument("--counts", type=pathlib.Path, metavar="DIR", help="where an instrumented telem writes")
    parser.add_argument("--quick", action="store_true", help="a little of each part that is its own")
    given = parser.parse_args()
    telem, amount = given.telem.resolve(), QUICK if given.quick else WHOLE
    activities = Activities(given.counts and given.counts.resolve())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="telem-train") as place:
        place = pathlib.Path(place)
        train(telem, amount, place, activities.begin)
        if not given.quick:
            measure(telem, activities.begin)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
