"""telem beside VictoriaMetrics, Prometheus, InfluxDB, QuestDB, DuckDB, ClickHouse and SQLite: the same data and the same
questions, in one run.

    benches/peers/run --quick                                      little data, to see whether it works here
    benches/peers/run --peers victoria-metrics,prometheus          only these beside telem
    benches/peers/run --version victoria-metrics=v1.121.0          another release
    benches/peers/run --source debian                              Debian's packages instead

Writes figures.json (everything that was measured), figures.md (tables) and figures.png. benches/README.md says how each
number is made. Every server listens on loopback, on free ports, with a directory of its own, and ends with the run.
"""

import argparse
import dataclasses
import http.client
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from . import binaries, machine, report
from .binaries import CACHE
from .embedded import Embedded
from .influx import InfluxDB
from .machine import say
from .prometheus import Prometheus
from .questdb import QuestDB
from .questions import RELATIVE, compare, questions
from .server import ANSWER_S, Failed, Process
from .telem import Telem, TelemBefore
from .tools import CHECKOUT, Tools
from .victoria import VictoriaMetrics

SERVERS = [Telem, TelemBefore, VictoriaMetrics, Prometheus, InfluxDB, QuestDB]
#: Libraries that may be left out. DuckDB is not among them: it is what answers are compared with.
LIBRARIES = ["clickhouse"]
#: Repetitions of a question in a round: quick ones go on for a while, slow ones end once there are five.
ASK_S_MIN, ASK_S_MAX = 0.4, 8.0
ASK_TIMES_MAX = 200
#: Repetitions before those that are measured.
WARM = 3


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much of everything."""

    hosts: int
    #: Seconds of data: of the rounds of ingest, by line protocol and by put; to be asked; and jittered.
    ingest_s: int
    put_s: int
    asked_s: int
    jittered_s: int
    #: Rounds of ingest: of telem and VictoriaMetrics, and of the others.
    rounds: int
    rounds_others: int
    ask_rounds: int
    ask_times: int
    cold_times: int
    sqlite_samples: int
    record_s: int
    deadline_s: int


FULL = Plan(100, 1_200, 400, 3_600, 1_200, 3, 2, 3, 10, 3, 500_000, 190, 45 * 60)
QUICK = Plan(20, 300, 100, 300, 300, 1, 1, 1, 5, 1, 20_000, 10, 15 * 60)
AMOUNTS = [field.name for field in dataclasses.fields(Plan)]


def planned(quick, changes):
    amounts = dict(change.split("=", 1) for change in changes)
    if strange := amounts.keys() - set(AMOUNTS):
        raise Failed(f"--change {', '.join(strange)}: there are {', '.join(AMOUNTS)}")
    return dataclasses.replace(QUICK if quick else FULL, **{name: int(amount) for name, amount in amounts.items()})


class Run:
    def __init__(self, plan, tools, servers, libraries, scratch, recording):
        self.plan, self.tools, self.servers, self.scratch = plan, tools, servers, scratch
        self.libraries = libraries
        self.recording = recording
        self.bodies = {}
        self.figures = {
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "machine": machine.facts(),
            "plan": dataclasses.asdict(plan),
            "versions": {},
            "data": {},
            "client": {},
            "ingest": [],
            "sizes": [],
            "asked": [],
            "cold": [],
            "answers": {},
            "embedded": {},
            "failed": [],
        }

    def attempt(self, peer, what, *arguments):
        """One database that fails leaves the run; the others, and what it gave before, stay."""
        if peer not in self.servers:
            return
        try:
            what(peer, *arguments)
        except (Failed, OSError, http.client.HTTPException, subprocess.SubprocessError) as error:
            Process.kill_all()
            if peer is Telem:
                raise
            say(f"  {peer.name} leaves the run: {error}")
            self.figures["failed"].append({"peer": peer.name, "what": what.__name__.strip("_"), "why": str(error)})
            self.servers = [server for server in self.servers if server is not peer]

    # Data

    def make_data(self):
        plan = self.plan
        nodes = ["--hosts", plan.hosts]
        self.sets = {
            "aligned": [*nodes, "--seconds", plan.asked_s],
            "jittered": [*nodes, "--seconds", plan.jittered_s, "--jitter-ms", 5],
            "recording": ["--recording", self.recording],
        }
        protocols = sorted({server.protocol for server in self.servers})
        for name, data in self.sets.items():
            for protocol in protocols:
                self._render(name, protocol, data)
            out = self.scratch / f"{name}.columns"
            self.figures["data"][f"{name} as columns"] = self.tools.run_loader("columns", *data, "--out", out)
        self._render("aligned", "put", [*nodes, "--seconds", plan.put_s])

    def _render(self, name, protocol, data):
        say(f"rendering {name} as {protocol}")
        out = self.scratch / f"{name}.{protocol}"
        made = self.tools.run_loader("bodies", "--protocol", protocol, *data, "--out", out)
        self.bodies[name, protocol] = out
        self.figures["data"][f"{name} as {protocol}"] = made

    def columns(self, name):
        return str(self.scratch / f"{name}.columns")

    def samples(self, seconds):
        return self.plan.hosts * 50 * seconds

    # What the client itself takes

    def measure_client(self):
        sink = Process([self.tools.load, "sink"], self.scratch / "sink.log", stdout=subprocess.PIPE, text=True)
        port = int(sink.child.stdout.readline())
        for protocol in sorted({protocol for name, protocol in self.bodies if name == "aligned"}):
            before = sink.cpu_s()
            sent = self.tools.run_loader(
                "send", "--bodies", self.bodies["aligned", protocol], "--to", f"127.0.0.1:{port}", "--path", "/"
            )
            sent["sink_cpu_s"] = sink.cpu_s() - before
            self.figures["client"][protocol] = sent
            rate = sent["samples"] / sent["seconds"] / 1e6
            cpu = per_million(sent["client_cpu_s"], sent)
            say(f"no-op sink, {protocol}: {rate:.1f} M samples/s, client {cpu:.3f} CPU-s/M")
        sink.end()

    # Ingest

    def send(self, server, name, protocol, samples_max=None):
        port, path, header = server.write_target(protocol)
        arguments = ["send", "--bodies", self.bodies[name, protocol], "--to", f"127.0.0.1:{port}", "--path", path]
        arguments += ["--connections", server.connections]
        if header:
            arguments += ["--header", header]
        if samples_max:
            arguments += ["--samples-max", samples_max]
        return self.tools.run_loader(*arguments)

    def ingest(self):
        plan = self.plan
        first = [Telem, TelemBefore, VictoriaMetrics]
        for at in range(plan.rounds):
            for protocol in ("lines", "put"):
                others = protocol == "lines" and at < plan.rounds_others
                peers = [peer for peer in self.servers if peer in first or others]
                # Nobody is always first.
                for peer in peers[at % len(peers) :] + peers[: at % len(peers)]:
                    seconds = plan.ingest_s if protocol == "lines" else plan.put_s
                    taken = peer.protocol if protocol == "lines" else protocol
                    self.attempt(peer, self._ingest_once, taken, at, self.samples(seconds))

    def _ingest_once(self, peer, protocol, at, samples_max):
        directory = self.scratch / "ingest" / peer.name
        server = peer(self.tools, directory)
        load_before = machine.load_average()
        server.start()
        self.figures["versions"].setdefault(peer.name, server.version())
        start_cpu = server.process.cpu_s()
        sent = self.send(server, "aligned", protocol, samples_max)
        loaded = server.process.cpu_s()
        memory = server.process.memory()
        # What a server does in the seconds after: it writes what it has gathered.
        server.process.settle()
        settled = server.process.cpu_s()
        ended = server.end_of_load()
        figure = {
            "peer": peer.name,
            "protocol": protocol,
            "round": at,
            **sent,
            "start_cpu_s": start_cpu,
            "loaded_cpu_s": loaded - start_cpu,
            "settled_cpu_s": settled - start_cpu,
            **{f"{name}_cpu_s": cpu - start_cpu for name, cpu in ended.items()},
            "memory": memory,
            "bytes_at_end": server.sizes(),
            "load_before": load_before,
            "load_after": machine.load_average(),
        }
        self.figures["ingest"].append(figure)
        shutil.rmtree(directory.parent)
        say(
            f"round {at + 1}: {peer.name:17} {protocol:6} {per_million(figure['loaded_cpu_s'], sent):6.3f} CPU-s/M to the last "
            f"answer, {per_million(figure['flushed_cpu_s'], sent):6.3f} flushed, {sent['samples'] / sent['seconds'] / 1e6:5.2f} "
            f"M/s, {memory['peak_mb']:.0f} MB"
        )

    # Sizes, and the databases that are asked

    def load_sets(self):
        for name in self.sets:
            for peer in self.servers:
                self.attempt(peer, self._load_set, name)
            if name != "aligned":
                shutil.rmtree(self.scratch / name)

    def _load_set(self, peer, name):
        if name in peer.refuses:
            say(f"{name}: {peer.name} takes no part: {peer.refuses[name]}")
            return
        server = peer(self.tools, self.scratch / name / peer.name)
        server.prepare_to_merge()
        server.start()
        start_cpu = server.process.cpu_s()
        sent = self.send(server, name, peer.protocol)
        loaded = server.process.cpu_s() - start_cpu
        memory = server.process.memory()
        began = time.monotonic()
        server.end_merged()
        bytes_by_part = server.sizes()
        figure = {
            "set": name,
            "peer": peer.name,
            **sent,
            "loaded_cpu_s": loaded,
            "memory": memory,
            "merging_s": time.monotonic() - began,
            "bytes": bytes_by_part,
            "bytes_a_sample": bytes_by_part["all"] / sent["samples"],
        }
        if peer is Telem:
            figure["files"] = server.files()
            parquet = self.scratch / f"{name}.parquet"
            figure["export_s"] = server.export(parquet)
            duck = self._duck(":memory:")
            same = duck.do("same", columns_directory=self.columns(name), parquet=str(parquet))
            duck.end()
            figure["lossless"] = same
            if not same["same"]:
                say(f"  telem's export is NOT what was sent: {same}")
        self.figures["sizes"].append(figure)
        say(f"{name}: {peer.name:17} {figure['bytes_a_sample']:.3f} bytes a sample")

    def _duck(self, path):
        return self._library("duckdb", path)

    def _library(self, name, path):
        library = Embedded(name, self.scratch / f"{name}.log")
        self.figures["versions"][name] = library.do("open", path=str(path))["version"]
        return library

    def attempt_library(self, name, what, *arguments):
        """As `attempt`, of a database in a process of its own."""
        if name not in self.libraries:
            return
        try:
            what(name, *arguments)
        except (Failed, OSError) as error:
            say(f"  {name} leaves the run: {error}")
            self.figures["failed"].append({"peer": name, "what": what.__name__.strip("_"), "why": str(error)})
            self.libraries = [library for library in self.libraries if library != name]

    def load_embedded(self):
        self._append_arrays()
        for name in LIBRARIES:
            self.attempt_library(name, self._load_library)
        arrived, merged = self.scratch / "arrived.duckdb", self.scratch / "sorted.duckdb"
        duck = self._duck(arrived)
        load = duck.do("load", columns_directory=self.columns("aligned"))
        memory = duck.process.memory()
        merge = duck.do("merge", path=str(merged))
        duck.end()
        sizes = {"arrived": arrived.stat().st_size, "sorted": merged.stat().st_size}
        self.figures["embedded"]["duckdb"] = {"load": load, "merge": merge, "memory": memory, "bytes": sizes}
        say(
            f"duckdb: {per_million(load['cpu_s'], load):.3f} CPU-s/M, sorted {per_million(merge['cpu_s'], load):.3f} more"
        )
        dragon = Embedded("sqlite", self.scratch / "sqlite.log")
        path = self.scratch / "dragon.db"
        self.figures["versions"]["sqlite"] = dragon.do("open", path=str(path))["version"]
        load = dragon.do("load", columns_directory=self.columns("aligned"), samples_max=self.plan.sqlite_samples)
        question = dataclasses.asdict(self.questions()[0])
        asked = dragon.do("ask", question=question, warm=1, times=3)
        memory = dragon.process.memory()
        dragon.end()
        figure = {"load": load, "asked": asked, "memory": memory, "bytes": path.stat().st_size}
        self.figures["embedded"]["sqlite"] = figure
        say(f"sqlite, Dragon's schema: {per_million(load['cpu_s'], load):.2f} CPU-s/M of {load['samples']} samples")

    def _append_arrays(self):
        """telem as a library: a program that has the arrays, and no server."""
        database = self.scratch / "appended"
        command = [str(part) for part in (self.tools.append, self.columns("aligned"), database)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_S * 10)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
        figure = json.loads(done.stdout)
        parquet = self.scratch / "appended.parquet"
        Telem(self.tools, database).export(parquet)
        duck = self._duck(":memory:")
        figure["lossless"] = duck.do("same", columns_directory=self.columns("aligned"), parquet=str(parquet))
        duck.end()
        if not figure["lossless"]["same"]:
            say(f"  what telem appended is NOT what it was given: {figure['lossless']}")
        self.figures["embedded"]["telem"] = figure
        load, merge = (per_million(figure[what]["cpu_s"], figure["load"]) for what in ("load", "merge"))
        say(f"telem, in process: {load:.3f} CPU-s/M, merged {merge:.3f} more")

    def _load_library(self, name):
        library = self._library(name, self.scratch / name)
        load = library.do("load", columns_directory=self.columns("aligned"))
        memory = library.process.memory()
        merge = library.do("merge")
        library.end()
        sizes = {"arrived": merge["bytes"]["arrived"], "sorted": merge["bytes"]["samples"]}
        self.figures["embedded"][name] = {"load": load, "merge": merge, "memory": memory, "bytes": sizes}
        taken, merged = per_million(load["cpu_s"], load), per_million(merge["cpu_s"], load)
        say(f"{name}: {taken:.3f} CPU-s/M, sorted {merged:.3f} more")

    # Questions

    def questions(self):
        return questions(self.plan.hosts, self.plan.asked_s)

    def expected(self):
        """DuckDB's answers on what telem exported."""
        duck = self._duck(":memory:")
        source = str(self.scratch / "aligned.parquet")
        answers = {}
        for question in self.questions():
            said = duck.do("ask", question=dataclasses.asdict(question), source=source, show=True)
            answers[question.name] = {as_key(key): value for key, value in said["answer"]}
        sixth = dataclasses.asdict(self.questions()[5])
        other = duck.do("percentiles", question=sixth, source=source)
        duck.end()
        self.other_p99 = {
            "victoria-metrics": other["greatest_of_series"],
            "prometheus": other["greatest_of_series"],
            "influxdb": other["nearest_rank"],
        }
        return answers

    def ask_all(self):
        expected = self.expected()
        for at in range(self.plan.ask_rounds):
            for peer in self.servers:
                self.attempt(peer, self._ask_server, at, expected)
            self._ask_duck("duckdb", self.scratch / "sorted.duckdb", "samples", at)
            self._ask_duck("duckdb on telem's Parquet", ":memory:", str(self.scratch / "aligned.parquet"), at)
            for name in LIBRARIES:
                self.attempt_library(name, self._ask_library, at, expected)

    def _ask_server(self, peer, at, expected):
        server = peer(self.tools, self.scratch / "aligned" / peer.name)
        load_before = machine.load_average()
        server.start()
        server.process.settle()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_S)
        for question in self.questions():
            body = b""
            request = server.request(question)
            for _ in range(WARM):
                body = ask(connection, request)
            if at == 0:
                self._judge(peer.name, question, expected, server.answer(question, body))
            walls, cpu, began = [], server.process.cpu_s(), time.monotonic()
            while go_on(len(walls), self.plan.ask_times, time.monotonic() - began):
                asked = time.monotonic()
                ask(connection, request)
                walls.append(time.monotonic() - asked)
            cpu = server.process.cpu_s() - cpu
            self._asked(peer.name, question, at, cpu, walls, len(body), load_before)
        self.figures["asked"][-1]["memory"] = server.process.memory()
        connection.close()
        server.stop()

    def _asked(self, name, question, at, cpu, walls, size, load_before):
        figure = {
            "peer": name,
            "question": question.name,
            "round": at,
            "times": len(walls),
            "cpu_ms": cpu / len(walls) * 1e3,
            "wall_ms": statistics.median(walls) * 1e3,
            "wall_ms_least": min(walls) * 1e3,
            "answer_bytes": size,
            "load_before": load_before,
            "load_after": machine.load_average(),
        }
        self.figures["asked"].append(figure)
        say(f"round {at + 1}: {name:26} {question.name} {figure['cpu_ms']:8.2f} CPU ms {figure['wall_ms']:8.2f} ms")

    def _judge(self, name, question, expected, found):
        wanted = expected[question.name]
        if question.name == "q6" and name in self.other_p99:
            wanted = {"p99": self.other_p99[name]}
        wrong = compare(wanted, found, RELATIVE.get((name, question.name), RELATIVE["any"]))
        self.figures["answers"].setdefault(name, {})[question.name] = {"values": len(found), "differs": wrong}
        if wrong:
            say(f"  {name} {question.name}: {wrong}")

    def _ask_duck(self, name, path, source, at):
        load_before = machine.load_average()
        duck = self._duck(path)
        for question in self.questions():
            self._ask_in_process(duck, name, question, at, load_before, source=source)
        duck.end()

    def _ask_library(self, name, at, expected):
        load_before = machine.load_average()
        library = self._library(name, self.scratch / name)
        for question in self.questions():
            if at == 0:
                said = library.do("ask", question=dataclasses.asdict(question), show=True)
                found = {as_key(key): value for key, value in said["answer"]}
                self._judge(name, question, expected, found)
            self._ask_in_process(library, name, question, at, load_before)
        library.end()

    def _ask_in_process(self, library, name, question, at, load_before, **order):
        order["question"] = dataclasses.asdict(question)
        took = library.do("ask", **order, warm=1)["walls"][0]
        times = next(n for n in range(ASK_TIMES_MAX + 1) if not go_on(n, self.plan.ask_times, n * took))
        said = library.do("ask", **order, times=times)
        self._asked(name, question, at, said["cpu_s"], said["walls"], 0, load_before)

    def ask_cold(self):
        """After a restart with no data in the page cache."""
        for at in range(self.plan.cold_times):
            for peer in self.servers:
                self.attempt(peer, self._ask_cold, at)

    def _ask_cold(self, peer, at):
        walls = {}
        for question in self.questions():
            server = peer(self.tools, self.scratch / "aligned" / peer.name)
            machine.forget(server.directory)
            server.start()
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=ANSWER_S)
            request = server.request(question)
            began = time.monotonic()
            ask(connection, request)
            wall = time.monotonic() - began
            connection.close()
            server.stop()
            walls[question.name] = wall
            figure = {"peer": peer.name, "question": question.name, "round": at, "wall_ms": wall * 1e3}
            self.figures["cold"].append({**figure, "start_s": server.started_s})
        said = ", ".join(f"{name} {wall * 1e3:.0f}" for name, wall in walls.items())
        say(f"cold {at + 1}: {peer.name:17} {said} ms")

    def all(self):
        self.make_data()
        self.measure_client()
        self.ingest()
        self.load_sets()
        self.load_embedded()
        self.ask_all()
        self.ask_cold()


def ask(connection, request):
    method, path, body, headers = request
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    said = answer.read()
    if answer.status != 200:
        raise Failed(f"{method} {path[:200]}: {answer.status} {said[:500]!r}")
    return said


def go_on(times, wanted, seconds):
    """Whether a question is asked once more."""
    if seconds > ASK_S_MAX and times >= 5:
        return False
    return times < wanted or (seconds < ASK_S_MIN and times < ASK_TIMES_MAX)


def as_key(key):
    """A key of an answer after JSON: lists are tuples again."""
    return tuple(as_key(part) for part in key) if isinstance(key, list) else key


def per_million(cpu_s, sent):
    return cpu_s / sent["samples"] * 1e6


def recording(given, seconds):
    """The recording that is used: the one given, or one that is made once and kept."""
    if given:
        return pathlib.Path(given).resolve()
    kept = CACHE / "peers" / f"recording-{seconds}s.tsv"
    if not kept.exists():
        say(f"recording this machine's /proc for {seconds} s, once; kept at {kept}")
        unfinished = kept.with_suffix(".part")
        kept.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, CHECKOUT / "benches/record_proc.py", unfinished, seconds]
        recorder = Process(command, kept.with_suffix(".log"))
        if recorder.child.wait(timeout=seconds + 60):
            raise Failed(f"no recording: {recorder.tail()}")
        Process.running.remove(recorder)
        unfinished.rename(kept)
    return kept


def options():
    shown = {"prog": "benches/peers/run", "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(description=__doc__, **shown)
    parser.add_argument("--quick", action="store_true", help="little data, one round: a few minutes")
    parser.add_argument("--telem", default=os.environ.get("TELEM"), help="the binary [TELEM, or target/release/telem]")
    parser.add_argument("--before", help="an older build of telem, measured by turns with it")
    parser.add_argument(
        "--append", metavar="PATH", help="the example `append` of telem-benches, built before [built now, in release]"
    )
    parser.add_argument("--out", type=pathlib.Path, help="where the figures go [benches/peers/results/TIME]")
    parser.add_argument("--recording", help="a file of benches/record_proc.py [one that is made once and kept]")
    parser.add_argument(
        "--peers", help="only these, with commas between [all that can be had]; telem, DuckDB and SQLite always"
    )
    binaries.options(parser)
    parser.add_argument("--scratch", type=pathlib.Path, help="for the databases, on a disk [in the cache]")
    parser.add_argument("--keep", action="store_true", help="keep the databases")
    parser.add_argument(
        "--change",
        action="append",
        default=[],
        metavar="NAME=N",
        help="another amount of something: " + ", ".join(AMOUNTS),
    )
    parser.add_argument(
        "--report", type=pathlib.Path, help="only make table and plot anew from the figures in this directory"
    )
    return parser.parse_args()


def chosen(names):
    """The servers beside telem and the libraries that a run has."""
    servers = [server for server in SERVERS if not issubclass(server, Telem)]
    if names is None:
        return servers, LIBRARIES
    wanted = set(filter(None, names.split(",")))
    known = {*(server.name for server in servers), *LIBRARIES, "duckdb", "sqlite"}
    if strange := wanted - known:
        raise Failed(f"--peers {', '.join(sorted(strange))}: there are {', '.join(sorted(known))}")
    return [server for server in servers if server.name in wanted], [name for name in LIBRARIES if name in wanted]


def there(servers, tools, all_wanted):
    """The servers whose binaries can be had. One that cannot is no reason to give up, unless it was asked for by name."""
    found, missing = [], []
    for server in servers:
        try:
            for name in server.binaries():
                tools.binary(name)
            found.append(server)
        except Failed as error:
            if all_wanted:
                raise
            say(f"{server.name} is left out: {error}")
            missing.append({"peer": server.name, "what": "binary", "why": str(error)})
    return found, missing


def cut_off(number, _):
    raise KeyboardInterrupt("the deadline is over" if number == signal.SIGALRM else signal.Signals(number).name)


def main():
    given = options()
    if given.report:
        report.write(json.loads((given.report / "figures.json").read_text()), given.report)
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, cut_off)
    plan = planned(given.quick, given.change)
    others, libraries = chosen(given.peers)
    out = given.out or CHECKOUT / "benches/peers/results" / time.strftime("%Y%m%d-%H%M%S")
    parent = given.scratch or CACHE / "peers"
    parent.mkdir(parents=True, exist_ok=True)
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="run-", dir=parent))
    # Sockets have short names.
    runtime_dir = tempfile.mkdtemp(prefix="telem-bench-")
    run = None
    try:
        others_from = {"source": given.source, "releases": dict(given.version), "paths": dict(given.binary)}
        tools = Tools(given.telem, given.before, given.append, runtime_dir, **others_from)
        others, missing = there(others, tools, given.peers is not None)
        servers = [Telem, *([TelemBefore] if given.before else []), *others]
        # Building the others is not part of it.
        signal.alarm(plan.deadline_s)
        run = Run(plan, tools, servers, libraries, scratch, recording(given.recording, plan.record_s))
        run.figures["failed"] += missing
        run.all()
        return 0
    except (Failed, OSError, http.client.HTTPException, subprocess.SubprocessError, KeyboardInterrupt) as error:
        say(f"stopped: {type(error).__name__}: {error}")
        if run:
            run.figures["failed"].append({"peer": "", "what": "run", "why": f"{type(error).__name__}: {error}"})
        return 1
    finally:
        signal.alarm(0)
        Process.kill_all()
        if run and run.figures["ingest"]:
            run.figures["ended"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            out.mkdir(parents=True, exist_ok=True)
            (out / "figures.json").write_text(json.dumps(run.figures, indent=1))
            report.write(run.figures, out)
            say(f"figures: {out}")
        shutil.rmtree(runtime_dir, ignore_errors=True)
        if given.keep:
            say(f"databases: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        sys.exit(f"error: {error}")
