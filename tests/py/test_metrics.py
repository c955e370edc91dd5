"""Gauges, counters, histograms, spans, records of logging, questions that are asked again: against the real server."""

import asyncio
import json
import logging
import math
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
# tests/py/test_wheel.py runs this file once more, with the compiled core.
CLIENT = pathlib.Path(os.environ.get("TELEM_CLIENT", SOURCES))
sys.path.insert(0, str(CLIENT))

import telem  # noqa: E402
from telem import SqlError, Telemetry, TelemetryError, _default  # noqa: E402

PATIENCE_S = 120


@pytest.fixture(autouse=True)
def no_telem_around(monkeypatch):
    """Tests say themselves what the environment holds, and begin with nothing made."""
    for name in list(os.environ):
        if name.startswith(("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK")) and name not in ("TELEM", "TELEM_PURE"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(_default, "_telemetry", None)


@pytest.fixture
def served(serve, tmp_path):
    server = serve(tmp_path / "db")
    server.file = str(tmp_path / "db" / "connection.json")
    return server


@pytest.fixture
def telemetry(served):
    made = Telemetry(address=served.file, process_tag=False)
    yield made
    made.finalize()


def series_of(server, metric):
    """The newest value of each series, by its tags without the host."""
    rows = server.sql(f"SELECT tags, last(value, ts) AS value FROM samples WHERE metric = '{metric}' GROUP BY tags")
    return {tuple(sorted((k, v) for k, v in row["tags"].items() if k != "host")): row["value"] for row in rows}


# What metrics are.


def said_of(server):
    """Type, unit and help of each metric that has any."""
    rows = server.sql("SELECT metric, type, unit, help FROM metrics")
    said = {row["metric"]: (row["type"], row["unit"] or "", row["help"] or "") for row in rows}
    return {metric: what for metric, what in said.items() if any(what[1:])}


def test_units_and_helps_are_those_that_the_program_says(served, telemetry):
    telemetry.gauge("power", unit="W", help="Of the board.").set(71.5)
    telemetry.counter("steps_total", help="Since the start.", tags={"phase": "a: b"}).inc()
    telemetry.histogram("wait_seconds", unit="s", buckets=[1]).observe(0.5)
    telemetry.gauge("not.described").set(1)
    assert telemetry.flush()
    assert said_of(served) == {
        "power": ("gauge", "W", "Of the board."),
        "steps_total": ("counter", "", "Since the start."),
        "wait_seconds_sum": ("histogram", "s", ""),
    }
    # What was said first stays, and the series are those that have points.
    telemetry.gauge("power", unit="kW", help="Of all.", tags={"gpu": 1}).set(1)
    assert telemetry.flush() and said_of(served)["power"] == ("gauge", "W", "Of the board.")
    assert served.sql("SELECT count(*) AS n FROM series WHERE metric = 'power'") == [{"n": 2}]
    assert telemetry.stats()["dropped"] == 0


def test_a_description_that_is_too_long_is_cut_and_one_above_the_level_is_not_told(served, telemetry):
    telemetry.gauge("long", unit="\u00e4" * 1000, help="h" * 10_000).set(1)
    telemetry.gauge("fine", unit="s", level=4).set(1)
    assert telemetry.flush()
    assert said_of(served) == {"long": ("gauge", "\u00e4" * 128, "h" * 4096)}


def test_a_service_that_is_started_later_is_told_what_metrics_are(serve, tmp_path):
    telemetry = Telemetry(address=str(tmp_path / "db" / "connection.json"))
    gauge = telemetry.gauge("early", unit="K")
    gauge.set(1)
    server = serve(tmp_path / "db")
    assert telemetry.flush(PATIENCE_S)
    assert said_of(server) == {"early": ("gauge", "K", "")}
    telemetry.finalize()


# Gauges.


def test_each_value_of_a_gauge_is_a_sample(served, telemetry):
    gauge = telemetry.gauge("temperature", unit="C", help="of the water", tags={"tank": 1})
    for value in [20.5, 21, math.nan, 2**62 + 1]:
        gauge.set(value)
    gauge.set(19.0, 1_700_000_000)
    assert telemetry.flush(PATIENCE_S)
    table = telemetry.sql("SELECT ts, value, value_int, tank FROM temperature ORDER BY ts", format="arrow").to_pylist()
    assert [row["value_int"] or row["value"] for row in table if not math.isnan(row["value"])] == [19.0, 20.5, 21, 2**62 + 1]
    assert len(table) == 5 and {row["tank"] for row in table} == {"1"} and table[0]["ts"].timestamp() == 1_700_000_000
    assert (gauge.unit, gauge.help) == ("C", "of the water")


def test_a_metric_never_raises_and_counts_what_it_cannot_keep(served, telemetry):
    gauge, counter, histogram = telemetry.gauge("g"), telemetry.counter("c"), telemetry.histogram("h")
    gauge.set("warm")
    gauge.set(1.0, "yesterday")
    counter.inc(-1)
    counter.inc(math.nan)
    counter.inc("x")
    histogram.observe(None)
    telemetry.gauge("").set(1)
    telemetry.histogram("wrong", buckets=[2, 1]).observe(1)
    telemetry.histogram("none", buckets=[]).observe(1)
    telemetry.histogram("h", buckets=[1, 2]).observe(1)
    telemetry.counter("bad tags", tags=5).inc(1)
    assert telemetry.flush(PATIENCE_S)
    reasons = telemetry.stats()["dropped_by_reason"]
    assert reasons == {"not a number": 3, "bad time": 1, "bad argument": 6, "bad name": 1}
    assert counter.value == 0 and histogram.count == 0


def test_tags_can_be_added_to_a_metric(served, telemetry):
    requests = telemetry.counter("requests_total", tags={"service": "a"})
    assert requests.tagged(method="get") is requests.tagged(method="get") is not requests
    requests.tagged(method="get").inc()
    requests.tagged(method="put", code=200).inc(2)
    assert telemetry.flush(PATIENCE_S)
    assert series_of(served, "requests_total") == {
        (("method", "get"), ("service", "a")): 1.0,
        (("code", "200"), ("method", "put"), ("service", "a")): 2.0,
    }


def test_levels_of_metrics_are_those_of_the_job(served):
    telemetry = Telemetry(address=served.file, process_tag=False, level=2)
    for level in (1, 2, 3):
        telemetry.gauge(f"g{level}", level=level).set(1)
        telemetry.counter(f"c{level}", level=level).inc()
        with telemetry.span(f"s{level}", level=level):
            pass
    assert telemetry.flush(PATIENCE_S)
    names = [row["metric"] for row in served.sql("SELECT DISTINCT metric FROM samples ORDER BY 1")]
    assert names == ["c1", "c2", "g1", "g2", "s1", "s2"]


# Counters and histograms.


def test_a_counter_is_exact_whatever_threads_and_objects_add_to_it(served, telemetry):
    shared = telemetry.counter("steps_total")
    ready = threading.Barrier(8)

    def work():
        own = telemetry.counter("steps_total")
        ready.wait()
        for number in range(5_000):
            shared.inc()
            own.inc(2)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.value == 8 * 5_000 * 3 and telemetry.flush(PATIENCE_S)
    assert series_of(served, "steps_total") == {(): 120_000.0}
    falls = served.sql("SELECT count(*) AS n FROM (SELECT value - lag(value) OVER (ORDER BY ts) AS d FROM steps_total) WHERE d <= 0")
    assert falls == [{"n": 0}]


def test_a_counter_in_a_signal_handler_loses_nothing(served, telemetry):
    counter = telemetry.counter("signals_total")
    seen = 0

    def handler(*_):
        nonlocal seen
        seen += 1
        counter.inc()

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    own = 0
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            counter.inc()
            own += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen > 10 and counter.value == own + seen
    assert telemetry.flush(PATIENCE_S) and series_of(served, "signals_total") == {(): float(own + seen)}


def test_a_counter_takes_fractions_and_large_numbers(served, telemetry):
    joules, large = telemetry.counter("joules_total"), telemetry.counter("large_total")
    joules.inc(0.5)
    joules.inc(1)
    large.inc(2**62)
    large.inc(1)
    assert (joules.value, large.value) == (1.5, 2**62 + 1) and telemetry.flush(PATIENCE_S)
    large.inc(2**62)
    large.inc(2**62)
    assert float(large.value) == 3 * 2.0**62, "beyond 64 bits a total is a float, as it is stored"
    rows = telemetry.sql("SELECT value_int FROM large_total ORDER BY ts LIMIT 1")
    assert rows == [{"value_int": 2**62 + 1}] and series_of(served, "joules_total") == {(): 1.5}


def test_a_histogram_is_cumulative_buckets_a_sum_and_a_count(served, telemetry):
    waits = telemetry.histogram("wait_seconds", buckets=[0.1, 1, 10, math.inf], tags={"queue": "a"})
    for value in [0.05, 0.1, 0.5, 1, 5, 100, math.nan]:
        waits.observe(value)
    assert (waits.count, waits.sum) == (7, 106.65) and telemetry.flush(PATIENCE_S)
    buckets = {dict(tags)["le"]: value for tags, value in series_of(served, "wait_seconds_bucket").items()}
    assert buckets == {"0.1": 2.0, "1": 4.0, "10": 5.0, "+Inf": 7.0}
    assert series_of(served, "wait_seconds_sum") == {(("queue", "a"),): 106.65}
    assert series_of(served, "wait_seconds_count") == {(("queue", "a"),): 7.0}
    # All of one moment, so that quantiles are right at each.
    times = telemetry.sql("SELECT ts, count(*) AS n FROM samples WHERE metric LIKE 'wait_seconds_%' GROUP BY ts")
    assert {row["n"] for row in times} == {6}


def test_a_histogram_is_exact_under_threads_and_times_code(served, telemetry):
    spread = telemetry.histogram("spread", buckets=[1, 2, 3])

    def work():
        for number in range(4_000):
            spread.observe(number % 4 + 0.5)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spread.count == 16_000 and spread.sum == 16_000 * 2.0
    with spread.time():
        pass
    assert spread.count == 16_001 and telemetry.flush(PATIENCE_S)
    assert sorted(series_of(served, "spread_bucket").values()) == [4_001.0, 8_001.0, 12_001.0, 16_001.0]


def count_in_child(counter, times):
    for _ in range(times):
        counter.inc()


def test_the_child_of_a_fork_counts_from_zero_for_itself(served):
    telemetry = Telemetry(address=served.file)
    counter = telemetry.counter("forked_total")
    counter.inc(5)
    child = multiprocessing.get_context("fork").Process(target=count_in_child, args=(counter, 3))
    child.start()
    child.join(PATIENCE_S)
    counter.inc()
    assert child.exitcode == 0 and telemetry.flush(PATIENCE_S)
    totals = {dict(tags)["pid"]: value for tags, value in series_of(served, "forked_total").items()}
    assert totals == {str(os.getpid()): 6.0, str(child.pid): 3.0}


def test_the_end_of_a_process_sends_its_totals(served):
    script = "import telem; c = telem.Counter('ended_total'); h = telem.Histogram('ended'); [c.inc() for _ in range(9)]; h.observe(3)"
    done = run(script, TELEM_CONNECTION=served.file)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(series_of(served, "ended_total").values()) == [9.0] and list(series_of(served, "ended_count").values()) == [1.0]


def run(script, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK"))}
    pure = {k: v for k, v in os.environ.items() if k == "TELEM_PURE"}
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**clean, **pure, "PYTHONPATH": str(CLIENT), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


# Spans.


def test_a_span_is_a_sample_of_seconds_at_its_end(served, telemetry):
    with telemetry.span("epoch", tags={"fold": 2}) as span:
        time.sleep(0.02)
    after = time.time()
    (row,) = telemetry.sql("SELECT value, fold, CAST(ts AS DOUBLE) AS at FROM epoch", strict=True)
    assert row["value"] == span.seconds >= 0.02 and row["fold"] == "2"
    (row,) = telemetry.sql("SELECT epoch_us FROM (SELECT CAST(ts AS BIGINT) AS epoch_us FROM epoch)")
    assert after - 5 < row["epoch_us"] / 1e6 <= after + 0.001


def test_spans_nest_and_exceptions_pass_through_them(served, telemetry):
    with pytest.raises(KeyError, match="it"):
        with telemetry.span("outer"):
            with telemetry.span("inner"):
                time.sleep(0.01)
            raise KeyError("it")
    again = telemetry.span("again")
    with again:
        with again:
            pass
        inner = again.seconds
    assert again.seconds >= inner and telemetry.flush(PATIENCE_S)
    assert telemetry.latest("outer") >= telemetry.latest("inner") >= 0.01
    assert served.sql("SELECT count(*) AS n FROM again") == [{"n": 2}]


def test_a_span_decorates_functions_coroutines_and_generators(served, telemetry):
    @telemetry.span("plain", tags={"kind": "f"})
    def plain(number, *, more=1):
        """Adds."""
        return plain(number - 1, more=more) + more if number else 0

    @telemetry.span("waited")
    async def waited():
        await asyncio.sleep(0.01)
        return 7

    @telemetry.span("fails")
    def fails():
        raise ValueError("as before")

    @telemetry.span("walked")
    def walk():
        got = yield 1
        return got

    async def both():
        return await asyncio.gather(waited(), waited())

    assert plain(3, more=2) == 6 and (plain.__name__, plain.__doc__) == ("plain", "Adds.")
    assert asyncio.run(both()) == [7, 7] and asyncio.iscoroutinefunction(waited)
    with pytest.raises(ValueError, match="as before"):
        fails()
    walker = walk()
    assert next(walker) == 1
    with pytest.raises(StopIteration) as ended:
        walker.send(5)
    assert ended.value.value == 5
    with pytest.raises(TypeError, match="asynchronous generator"):

        @telemetry.span("no")
        async def numbers():
            yield 1

    assert telemetry.flush(PATIENCE_S)
    counted = {row["metric"]: row["n"] for row in served.sql("SELECT metric, count(*) AS n FROM samples GROUP BY metric")}
    assert counted == {"plain": 4, "waited": 2, "fails": 1, "walked": 1}
    assert served.sql("SELECT min(value) >= 0.01 AS slept FROM waited") == [{"slept": True}]


# The module.


def test_the_module_logs_as_wandb_does(served, monkeypatch):
    monkeypatch.setenv("TELEM_CONNECTION", served.file)
    early = telem.Gauge("early")
    early.set(1)
    made = telem.init(name="trial", config={"lr": 0.1}, tags={"fold": 3})
    early.set(2)
    telem.log({"train": {"loss": 0.5}, "acc": 0.25}, step=3)
    telem.note("halved")
    with telem.span("spanned"):
        pass
    assert telem.latest("train/loss") == 0.5
    assert telem.sql('SELECT step, fold, "train/loss" AS loss FROM "train/loss"') == [{"step": 3, "fold": "3", "loss": 0.5}]
    assert telem.finish() and made.level == 0
    telem.log({"acc": 1})
    early.set(3)
    (job,) = served.sql("SELECT name, settings FROM jobs")
    assert job["name"] == "trial" and job["settings"] == {"lr": 0.1} or json.dumps(job["settings"]).count("0.1") == 1
    assert served.sql("SELECT count(*) AS n FROM acc") == [{"n": 1}]
    assert [row["value"] for row in served.sql("SELECT value FROM early ORDER BY ts")] == [1.0, 2.0]
    telem.init()
    early.set(4)
    assert telem.finish() and telem.finish()
    assert served.sql("SELECT max(value) AS last FROM early") == [{"last": 4.0}]


def test_without_a_service_metrics_count_for_themselves_and_start_nothing():
    script = """
import asyncio, logging, sys, threading
import telem
counter, gauge, histogram = telem.Counter("c"), telem.Gauge("g"), telem.Histogram("h", buckets=[1])
logging.getLogger().addHandler(telem.LoggingHandler())
for _ in range(5000):
    counter.inc(); gauge.set(1.5); histogram.observe(2)
logging.warning("nobody hears it")
with telem.span("s"): pass
telem.log({"a": 1}, step=1)
assert (counter.value, histogram.count) == (5000, 5000)
assert telem.latest("c") is None and list(telem.watch("SELECT 1")) == []
assert asyncio.run(telem.asql("SELECT 1")) == []
assert telem.finish() and "http.client" not in sys.modules and threading.active_count() <= 2
"""
    done = run(script)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("said", ["argument", "environment"])
def test_rank_and_pid_are_had_on_request(served, monkeypatch, said):
    monkeypatch.setenv("RANK", "3")
    if said == "environment":
        monkeypatch.setenv("TELEM_PROCESS_TAG", "both")
    telemetry = Telemetry(address=served.file, process_tag="both" if said == "argument" else None)
    telemetry.add_data("who", 1)
    assert telemetry.sql("SELECT rank, pid FROM who") == [{"rank": "3", "pid": str(os.getpid())}]


# Records of logging.


def notes_of(server):
    with urllib.request.urlopen(f"http://{server.address}/api/annotations?start_time=1", timeout=PATIENCE_S) as answer:
        return json.loads(answer.read())


@pytest.fixture
def logger():
    made = logging.getLogger("of.the.program")
    made.propagate = False
    yield made
    for handler in list(made.handlers):
        made.removeHandler(handler)


def test_log_records_become_notes_and_are_counted_by_level(served, telemetry, logger):
    logger.addHandler(telem.LoggingHandler(level=logging.WARNING, telemetry=telemetry))
    logger.info("not this one")
    logger.warning("rate %d halved", 3)
    try:
        raise OSError("disk full")
    except OSError:
        logger.exception("it failed")
    logging.getLogger("telem").warning("of telem itself")
    assert telemetry.flush(PATIENCE_S)
    notes = {note["description"]: note for note in notes_of(served)}
    assert set(notes) == {"rate 3 halved", "it failed"}
    assert "OSError: disk full" in notes["it failed"]["notes"]
    assert notes["rate 3 halved"]["custom"]["level"] == "WARNING"
    assert notes["rate 3 halved"]["custom"]["logger"] == "of.the.program"
    assert series_of(served, "log_records_total") == {(("level", "warning"),): 1.0, (("level", "error"),): 1.0}


def test_many_log_records_are_left_out_and_counted(served, telemetry, logger):
    handler = telem.LoggingHandler(telemetry=telemetry, per_minute=0, burst=10)
    logger.addHandler(handler)
    for number in range(500):
        logger.warning("again %d", number)
    assert handler.left_out == 490
    handler._room = 1.0
    logger.error("at last")
    assert telemetry.flush(PATIENCE_S)
    notes = {note["description"]: note for note in notes_of(served)}
    assert len(notes) == 11, "each has a time of its own"
    assert notes["at last"]["custom"]["left_out"] == "490" and "490 earlier records" in notes["at last"]["notes"]
    assert series_of(served, "log_records_total") == {(("level", "warning"),): 500.0, (("level", "error"),): 1.0}
    assert series_of(served, "log_records_left_out_total") == {(): 490.0}


# Questions.


def test_asynchronous_questions_leave_the_loop_free(served, telemetry):
    telemetry.add_data("m", 1.5)
    beats = 0

    async def beat():
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.005)

    async def main():
        heart = asyncio.ensure_future(beat())
        served.process.send_signal(signal.SIGSTOP)
        asked = asyncio.ensure_future(telemetry.asql("SELECT value FROM m", strict=True))
        await asyncio.sleep(0.3)
        assert not asked.done() and beats > 5
        served.process.send_signal(signal.SIGCONT)
        rows = await asked
        heart.cancel()
        return rows

    assert asyncio.run(main()) == [{"value": 1.5}]
    with pytest.raises(SqlError):
        asyncio.run(telemetry.asql("SELECT * FROM nowhere"))


def test_the_latest_value_is_a_number_or_one_for_each_series(served):
    a = Telemetry(address=served.file, process_tag=False)
    assert a.latest("loss") is None
    a.add_data("loss", 0.5)
    a.add_data("loss", 0.25)
    assert a.latest("loss") == 0.25
    a.add_data("large", 2**62 + 1)
    a.add_data("lost", math.nan)
    assert a.latest("large") == 2**62 + 1 and math.isnan(a.latest("lost"))
    for rank in range(3):
        a.add_data("step_seconds", rank + 0.5, tags={"rank": rank, "phase": "train"})
    assert a.latest("step_seconds") == {"rank=0": 0.5, "rank=1": 1.5, "rank=2": 2.5}
    assert a.latest("step_seconds", rank=1) == 1.5 and a.latest("step_seconds", rank=7) is None
    assert a.latest("step_seconds", phase="it's") is None


def test_a_watch_gives_answers_until_the_end(served, telemetry):
    seen = []
    for rows in telemetry.watch("SELECT count(*) AS n FROM samples WHERE metric = 'm'", every=0.02):
        seen.append(rows[0]["n"])
        if len(seen) == 5:
            break
        telemetry.add_data("m", 1)
    assert seen == [0, 1, 2, 3, 4]
    watch = telemetry.watch("SELECT 1 AS x", every=3600)
    assert next(iter(watch)) == [{"x": 1}]
    threading.Timer(0.1, telemetry.finalize).start()
    assert list(watch) == [] and watch.is_ended


def test_a_watch_waits_for_a_metric_that_nobody_has_logged_yet(served, telemetry, caplog):
    watch = telemetry.watch("SELECT value FROM later", every=0.02)
    threading.Timer(0.3, telemetry.add_data, ("later", 7)).start()
    assert next(iter(watch)) == [{"value": 7.0}] and watch.missed > 0
    told = [record.getMessage() for record in caplog.records if "asks again" in record.getMessage()]
    assert sum("no table or metric 'later'" in text for text in told) == 1, "each reason is told once"
    with pytest.raises(SqlError):
        next(iter(telemetry.watch("SELEC 1")))


def test_a_watch_asks_again_after_a_service_that_was_silent(served, telemetry):
    watch = telemetry.watch("SELECT 1 AS x", every=0.02, timeout=0.5)
    answers = iter(watch)
    assert next(answers) == [{"x": 1}]
    served.process.send_signal(signal.SIGSTOP)
    threading.Timer(1.5, served.process.send_signal, (signal.SIGCONT,)).start()
    assert next(answers) == [{"x": 1}] and watch.missed >= 1


def test_a_watch_is_an_asynchronous_generator_too(served, telemetry):
    async def main():
        seen = []
        async for rows in telemetry.watch("SELECT count(*) AS n FROM samples WHERE metric = 'm'", every=0.02):
            seen.append(rows[0]["n"])
            telemetry.add_data("m", 1)
            if len(seen) == 3:
                await asyncio.to_thread(telemetry.finalize)
        return seen

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == [0, 1, 2]


def test_a_watch_calls_a_function_and_keeps_what_it_raised(served, telemetry):
    called, enough = [], threading.Event()

    def call(rows):
        called.append(rows)
        if len(called) == 3:
            enough.set()
            raise RuntimeError("enough")

    watch = telemetry.watch("SELECT 1 AS x", every=0.01, call=call)
    assert enough.wait(PATIENCE_S) and watch.join(PATIENCE_S)
    assert called == [[{"x": 1}]] * 3 and str(watch.error) == "enough" and watch.is_ended
    wrong = telemetry.watch("SELEC 1", call=called.append)
    assert wrong.join(PATIENCE_S) and isinstance(wrong.error, SqlError)


def test_a_metric_of_many_processes_of_a_node_stays_apart(served):
    script = """
import telem
telem.Counter("work_total").inc(5)
telem.Gauge("load").set(1)
telem.finish()
"""
    pure = {k: v for k, v in os.environ.items() if k == "TELEM_PURE"}
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK"))}
    environment = {**clean, **pure, "PYTHONPATH": str(CLIENT), "TELEM_CONNECTION": served.file, "TELEM_PROCESS_TAG": "both"}
    crowd = [subprocess.Popen([sys.executable, "-S", "-c", script], env={**environment, "RANK": str(n % 2)}) for n in range(6)]
    assert [one.wait(PATIENCE_S) for one in crowd] == [0] * 6
    rows = served.sql("SELECT rank, pid, value FROM work_total")
    assert {(row["rank"], row["pid"]) for row in rows} == {(str(n % 2), str(one.pid)) for n, one in enumerate(crowd)}
    assert served.sql("SELECT sum(value) AS all FROM work_total") == [{"all": 30.0}]


def test_no_telem_is_an_error_only_where_that_is_asked_for():
    with pytest.raises(TelemetryError):
        telem.sql("SELECT 1", strict=True)
    assert telem.sql("SELECT 1") == []
