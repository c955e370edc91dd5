"""The Python client on libtelem: what the compiled core gives to it, for the service that the environment names."""

import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest
from conftest import PATIENCE_S
from test_wheel import build


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The package with its core, as pip would unpack it."""
    directory = tmp_path_factory.mktemp("core")
    wheel, _ = build(directory)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    return directory / "site"


@pytest.fixture
def served(serve, tmp_path):
    server = serve(tmp_path / "db")
    server.file = str(tmp_path / "db" / "connection.json")
    return server


@pytest.fixture
def start(site):
    """Starts a script with the core, whose `telemetry` is of the environment's service."""
    ours = ("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK")

    def begin(script, file, **more):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return subprocess.Popen(
            [sys.executable, "-c", "import json, os, sys, telem\ntelemetry = telem.Telemetry()\n" + script],
            env={**clean, "PYTHONPATH": str(site), "TELEM_CONNECTION": file, **more},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


@pytest.fixture
def run(start):
    """What such a script printed on both of its outputs."""

    def finish(script, file, **more):
        one = start(script, file, **more)
        said, warned = one.communicate(timeout=PATIENCE_S)
        assert one.returncode == 0, warned
        return said, warned

    return finish


def test_points_of_all_kinds_are_sent_without_a_thread_of_python(served, run):
    script = """
import math, threading
numbers = [0.1, -0.0, 1e-320, math.nan, -math.inf, 0, -1, 2**63 - 1, -(2**63)]
for number in numbers:
    telemetry.add_data("exact", number, tags={"kind": "of all"})
gauge = telemetry.gauge("held")
for number in range(1000):
    gauge.set(number)
gauge.set(0.5, timestamp=1_700_000_000)
with telemetry.span("spanned"):
    pass
assert telemetry.flush(60) and telemetry.flush(0) and threading.active_count() == 1
print(json.dumps([type(telemetry.sender).__name__, telemetry.stats()]))
"""
    name, stats = json.loads(run(script, served.file)[0])
    assert name == "NativeSender"
    assert (stats["sent"], stats["queued"], stats["dropped_by_reason"]) == (9 + 1_001 + 1, 0, {})
    assert served.sql("SELECT count(*) AS n, count(DISTINCT ts) AS times FROM held") == [{"n": 1_001, "times": 1_001}]
    rows = served.sql("SELECT CAST(value AS VARCHAR) AS value, value_int, kind FROM exact ORDER BY ts")
    assert [row["value_int"] for row in rows[5:]] == [0, -1, 2**63 - 1, -(2**63)]
    assert [row["value"] for row in rows[:5]] == ["0.1", "-0.0", "1e-320", "NaN", "-inf"]
    assert {row["kind"] for row in rows} == {"of_all"}


def test_values_of_one_log_have_one_time_whoever_logs_beside_it(served, run):
    script = """
import threading
def work(first):
    for number in range(first, first + 500):
        telemetry.log({"v": number, "w": {"x": 0.5}}, step=number)
        telemetry.log({"v": number + 100_000}, step=number + 100_000, timestamp=77)
threads = [threading.Thread(target=work, args=(first,)) for first in (0, 10_000, 20_000)]
for thread in threads: thread.start()
for thread in threads: thread.join()
telemetry.log({f"many_{number}": number for number in range(1_500)})
assert telemetry.flush(60) and telemetry.dropped == 0, telemetry.stats()
"""
    run(script, served.file)
    joined = "SELECT count(*) AS n, count(*) FILTER (WHERE v.value = s.value) AS same FROM v JOIN step s USING (ts)"
    assert served.sql(joined) == [{"n": 3_000, "same": 3_000}]
    assert served.sql('SELECT count(*) AS n FROM v JOIN "w/x" USING (ts)') == [{"n": 1_500}]
    one = "SELECT count(*) AS n, count(DISTINCT ts) AS times FROM samples WHERE metric LIKE 'many_%'"
    assert served.sql(one) == [{"n": 1_500, "times": 1}]


def test_totals_and_what_is_said_of_metrics_are_the_same(served, run):
    script = """
counter = telemetry.counter("work_total", unit="items", help="Done.")
spread = telemetry.histogram("wait_seconds", buckets=[0.1, 1], unit="s")
for value in [0.1, 0.5, 5]:
    counter.inc(); spread.observe(value)
counter.inc(0.5)
assert telemetry.flush(60) and (counter.value, spread.count) == (3.5, 3)
"""
    run(script, served.file)
    assert served.sql("SELECT last(value, ts) AS value FROM work_total") == [{"value": 3.5}]
    buckets = served.sql("SELECT le, last(value, ts) AS value FROM wait_seconds_bucket GROUP BY le ORDER BY value")
    assert buckets == [{"le": "0.1", "value": 1.0}, {"le": "1", "value": 2.0}, {"le": "+Inf", "value": 3.0}]
    said = served.sql("SELECT type, unit, help FROM metrics WHERE metric IN ('work_total', 'wait_seconds_sum') ORDER BY 1")
    assert said == [{"type": "counter", "unit": "items", "help": "Done."}, {"type": "histogram", "unit": "s", "help": None}]


def test_what_is_refused_is_counted_and_told(served, run):
    script = """
import time
telemetry.add_data("good", 1)
telemetry.add_data("ahead", 1, time.time() + 7_200)
telemetry.add_data("y" * 600, 1)
telemetry.log({"z" * 600: 1, "fine": 2})
assert telemetry.flush(60)
print(json.dumps(telemetry.stats()))
"""
    said, warned = run(script, served.file)
    stats = json.loads(said)
    assert (stats["sent"], stats["dropped"]) == (2, 3)
    assert stats["dropped_by_reason"] == {"refused by the service": 1, "bad name": 2}
    assert "ahead of this machine's clock" in warned and "has 600 bytes; at most 512 are taken" in warned
    assert "3 of 5 points were dropped: bad name 2, refused by the service 1" in warned


def test_the_child_of_a_fork_sends_its_own_points_by_a_thread_of_its_own(served, run):
    script = """
gauge, counter = telemetry.gauge("forked"), telemetry.counter("forked_total")
for number in range(300):
    gauge.set(number); counter.inc()
child = os.fork()
for number in range(50):
    gauge.set(number); counter.inc()
assert telemetry.flush(60)
print(json.dumps([child == 0, telemetry.sent > 0]), flush=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
    assert len(run(script, served.file)[0].splitlines()) == 2
    rows = served.sql("SELECT pid, count(*) AS n FROM forked GROUP BY pid ORDER BY n")
    assert [row["n"] for row in rows] == [50, 350]
    totals = served.sql("SELECT pid, max(value) AS value FROM forked_total GROUP BY pid ORDER BY value")
    assert [row["value"] for row in totals] == [50.0, 350.0]


def test_children_of_multiprocessing_lose_nothing_at_their_end(served, run):
    script = """
import multiprocessing
def work(count):
    for number in range(count): telemetry.add_data("child", number)
with multiprocessing.get_context("fork").Pool(2) as pool:
    pool.map(work, [100] * 6)
    pool.close(); pool.join()
"""
    run(script, served.file)
    assert served.sql("SELECT count(*) AS n FROM child") == [{"n": 600}]


def test_a_service_that_is_killed_and_started_again_gets_everything(serve, start, tmp_path):
    server = serve(tmp_path / "db")
    script = """
for word in ("before", "while it is away", "after"):
    for number in range(500): telemetry.add_data("survivor", number)
    print(telemetry.flush(60 if word != "while it is away" else 3), flush=True)
    sys.stdin.readline()
print(json.dumps(telemetry.stats()))
"""
    one = start(script, str(tmp_path / "db" / "connection.json"))
    assert one.stdout.readline() == "True\n"
    server.kill()
    one.stdin.write("\n")
    one.stdin.flush()
    assert one.stdout.readline() == "False\n"
    server = serve(tmp_path / "db")
    said, warned = one.communicate("\n\n", timeout=PATIENCE_S)
    flushed, stats = said.splitlines()
    stats = json.loads(stats)
    assert (one.returncode, flushed) == (0, "True"), warned
    assert (stats["sent"], stats["dropped"], stats["queued"], stats["connections_lost"]) == (1_500, 0, 0, 1)
    assert server.sql("SELECT count(*) AS n FROM survivor") == [{"n": 1_500}]


@pytest.mark.parametrize("case", ["over TCP", "no rank wanted", "named by the program", "not there yet"])
def test_what_libtelem_cannot_do_is_done_in_python(served, run, tmp_path, case):
    known = json.loads(pathlib.Path(served.file).read_text())
    file, more, of, count = served.file, {}, "telemetry", 1
    if case == "over TCP":
        file = tmp_path / "tcp.json"
        file.write_text(json.dumps({**known, "socket": str(tmp_path / "gone.sock")}))
    elif case == "no rank wanted":
        more = {"RANK": "3", "TELEM_PROCESS_TAG": "0"}
    elif case == "named by the program":
        of, file = f"telem.Telemetry(address={served.file!r})", ""
    else:
        file, count = tmp_path / "later.json", 0
    script = f"""
made = {of}
made.add_data("way", 1); made.log({{"way": 2, "more": 3}})
print(type(made.sender).__name__, made.flush(60) and made.sent)
"""
    said, _ = run(script, str(file), **more)
    assert said.split() == ["Sender", "3" if count else "False"]
    if count:
        (row,) = served.sql("SELECT count(*) AS n, count(tags['rank']) AS ranks FROM samples WHERE metric = 'way'")
        assert row == {"n": 2, "ranks": 0}
