"""The Python client against the real server: what `clients/python/README.md` promises."""

import datetime
import decimal
import fractions
import json
import math
import multiprocessing
import os
import pathlib
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
# tests/py/test_wheel.py runs this file once more, with the compiled core.
CLIENT = pathlib.Path(os.environ.get("TELEM_CLIENT", SOURCES))
sys.path.insert(0, str(CLIENT))

import telem  # noqa: E402
from telem import SqlError, Telemetry, TelemetryError, _points, _sender  # noqa: E402

PATIENCE_S = 120


@pytest.fixture(autouse=True)
def no_telem_around(monkeypatch):
    """Tests say themselves what the environment holds."""
    for name in list(os.environ):
        if name.startswith(("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK")) and name not in ("TELEM", "TELEM_PURE"):
            monkeypatch.delenv(name)


@pytest.fixture
def served(serve, tmp_path):
    """A running server and how to find it."""
    server = serve(tmp_path / "db")
    server.file = str(tmp_path / "db" / "connection.json")
    return server


def python(script, *arguments, executable=sys.executable, file=None, **more):
    """Runs `script` in a process of its own, which finds the service by `file`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK"))}
    named = {} if file is None else {"TELEM_CONNECTION": file}
    return subprocess.run(
        [executable, "-c", script, *map(str, arguments)],
        env={**clean, **named, "PYTHONPATH": str(CLIENT), **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def stored(server, metric):
    return server.sql(f"SELECT count(*) AS n FROM samples WHERE metric = '{metric}'")[0]["n"]


def settled(telemetry):
    """The counts once nothing waits any more."""
    assert telemetry.flush(PATIENCE_S)
    return telemetry.stats()


# What the run is.


def test_a_run_says_what_it_was_started_with_and_notes_what_happens(served):
    telemetry = Telemetry(address=served.file, name="trial", config={"lr": 0.1, "model": {"depth": 12}, "sizes": [1, 2]})
    assert telemetry.config(lr=3e-4, loss=math.nan, path=pathlib.Path("data"), tags={"sweep": 7})
    (job,) = served.sql("SELECT name, description FROM jobs")
    described = json.loads(job["description"])
    assert job["name"] == "trial" and described["tags"] == {"sweep": "7"}
    assert described["settings"] == {
        "lr": 3e-4, "model.depth": 12, "sizes": "[1,2]", "loss": "nan", "path": "data",
    }
    assert telemetry.note("learning rate halved", details="by hand", epoch=3)
    assert not Telemetry().config(lr=1) and not Telemetry().note("nobody hears it"), "without telem"


def test_a_setting_that_cannot_be_kept_is_told_and_never_raised(served, caplog):
    telemetry = Telemetry(address=served.file)
    assert not telemetry.config({"": 1}) and not telemetry.config(text="x" * 5_000)
    assert not telemetry.note("too late", timestamp="yesterday")
    assert "a config was not kept" in caplog.text and "a note was not kept" in caplog.text


# What is stored.


def test_numbers_are_stored_exactly(served):
    telemetry = Telemetry(address=served.file)
    numbers = [0.1, -0.0, 1e-320, 1.7976931348623157e308, 1e22, 5.0, math.nan, math.inf, -math.inf]
    numbers += [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), True]
    for number in numbers:
        telemetry.add_data("exact", number)
    table = telemetry.sql("SELECT value, value_int FROM exact ORDER BY ts", format="arrow")
    for number, value, value_int in zip(numbers, table["value"].to_pylist(), table["value_int"].to_pylist()):
        if isinstance(number, float):
            assert value_int is None
            assert struct.pack("d", value) == struct.pack("d", number) or math.isnan(number) and math.isnan(value)
        else:
            assert value_int == number
    assert table.num_rows == len(numbers)


class Scalar:
    """What NumPy and PyTorch have in common."""

    def __init__(self, inner):
        self.inner = inner

    def item(self):
        return self.inner


def test_whatever_holds_one_number_is_taken(served):
    class Index:
        def __index__(self):
            return 7

    class Real(float):
        def __repr__(self):
            return "Real(0.5)"

    telemetry = Telemetry(address=served.file)
    given = [Scalar(0.25), Scalar(2**62 + 1), Scalar(Scalar), decimal.Decimal("0.5"), fractions.Fraction(1, 4), Index(), Real(0.5)]
    for number in given:
        telemetry.add_data("scalar", number)
    rows = telemetry.sql("SELECT value, value_int FROM scalar ORDER BY ts")
    assert [row["value"] if row["value_int"] is None else row["value_int"] for row in rows] == [0.25, 2**62 + 1, 0.5, 0.25, 7, 0.5]
    assert telemetry.stats()["dropped_by_reason"] == {"not a number": 1}


def test_numpy_scalars_and_arrays_of_one_element_are_numbers(served):
    numpy = pytest.importorskip("numpy")
    telemetry = Telemetry(address=served.file)
    for number in [numpy.float64(0.1), numpy.float32(0.5), numpy.int64(2**62 + 1), numpy.array([3]), numpy.bool_(True)]:
        telemetry.add_data("numpy", number)
    telemetry.add_data("numpy", numpy.zeros(2))
    rows = telemetry.sql("SELECT value, value_int FROM numpy ORDER BY ts")
    assert [row["value_int"] or row["value"] for row in rows] == [0.1, 0.5, 2**62 + 1, 3, 1]
    assert telemetry.dropped == 1
    # What is masked has no value, and a time is no number, whatever its unit.
    masked = numpy.ma.array([1.0], mask=[True])
    for nothing in [numpy.ma.masked, masked, masked[0], numpy.timedelta64(3, "ns"), numpy.datetime64("2024-01-01", "ns")]:
        telemetry.add_data("numpy", nothing)
    telemetry.add_data("numpy", numpy.ma.array([7], mask=[False]))
    assert settled(telemetry)["dropped"] == 6
    assert telemetry.sql("SELECT value_int FROM numpy ORDER BY ts DESC LIMIT 1") == [{"value_int": 7}]


def test_numpy_times_are_times(served):
    numpy = pytest.importorskip("numpy")
    telemetry = Telemetry(address=served.file)
    for unit in ["s", "ms", "us", "ns"]:
        telemetry.add_data("when", 1, numpy.datetime64("2023-11-14T22:13:20", unit), tags={"unit": unit})
    telemetry.add_data("when", 1, numpy.datetime64("NaT"))
    assert telemetry.sql("SELECT DISTINCT ts FROM \"when\"") == [{"ts": "2023-11-14T22:13:20Z"}]
    assert telemetry.stats()["dropped_by_reason"] == {"bad time": 1}


def test_times_are_seconds_or_datetimes_and_kept_in_microseconds(served):
    telemetry = Telemetry(address=served.file)
    utc = datetime.timezone.utc
    given = [
        1_700_000_000,
        1_700_000_001.000001,
        datetime.datetime(2023, 11, 14, 22, 13, 22, 3, tzinfo=utc),
        datetime.datetime(2023, 11, 15, 0, 13, 23, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        datetime.datetime.fromtimestamp(1_700_000_004),
    ]
    for number, when in enumerate(given):
        telemetry.add_data("timed", number, when)
    times = [row["ts"] for row in telemetry.sql("SELECT ts FROM timed ORDER BY value")]
    assert [time.rstrip("Z").ljust(26, "0") for time in (t if "." in t else t.rstrip("Z") + "." for t in times)] == [
        "2023-11-14T22:13:20.000000",
        "2023-11-14T22:13:21.000001",
        "2023-11-14T22:13:22.000003",
        "2023-11-14T22:13:23.000000",
        "2023-11-14T22:13:24.000000",
    ]


def test_points_of_a_series_never_overwrite_each_other(served):
    telemetry = Telemetry(address=served.file)
    for number in range(5_000):
        telemetry.add_data("tight", number)
    for number in range(10):
        telemetry.add_data("same_second", number, 1_700_000_000)
    assert settled(telemetry)["dropped"] == 0
    assert (stored(served, "tight"), stored(served, "same_second")) == (5_000, 10)
    in_order = telemetry.sql("SELECT value FROM tight ORDER BY ts")
    assert [row["value"] for row in in_order] == list(range(5_000))


def test_times_that_the_caller_repeats_in_any_order_overwrite_nothing(served):
    telemetry = Telemetry(address=served.file)
    for case, times in enumerate([(100, 101, 100, 101, 100), (100.0, 100.0, 100.000001), (7.000002, 7, 7, 7, 7.000001), (9, None, 9, None)]):
        for number, when in enumerate(times):
            telemetry.add_data(f"told_{case}", number, when)
        assert settled(telemetry)["dropped"] == 0
        rows = telemetry.sql(f"SELECT value FROM told_{case}")
        assert sorted(row["value"] for row in rows) == list(range(len(times))), case


def test_the_clock_and_the_caller_may_say_the_same_time():
    times, series = _points.Times(), _points.Series("m")
    given = [(50, True), (50, False), (50, False), (52, True), (51, True), (60, True), (60, False), (60, True)]
    found = [times.of(series, _points.Moment(micros, told)) for micros, told in given]
    assert found == [50, 51, 52, 53, 54, 60, 61, 62]


def test_a_time_is_remembered_for_as_many_others_as_the_limit_says():
    times, series, told_max = _points.Times(), _points.Series("m"), _points.TOLD_MAX
    for micros in range(1_000, 1_000 + 2 * told_max, 2):
        assert times.of(series, _points.Moment(micros, True)) == micros
    assert times.of(series, _points.Moment(1_000, True)) == 1_001, "at the limit"
    for micros in range(10_000_000, 10_000_000 + 4 * told_max, 2):
        times.of(series, _points.Moment(micros, True))
    assert times.of(series, _points.Moment(1_000, True)) == 1_000, "beyond it the store's rule holds: the later one stays"
    assert len(times) <= 2 * (told_max + 1)


def test_the_values_and_the_step_of_one_log_have_one_time_whoever_logs_beside_it(served):
    telemetry = Telemetry(address=served.file)

    def many(thread):
        for number in range(4_000):
            telemetry.log({"v": thread * 10_000 + number, "w": 1}, step=thread * 10_000 + number)
            if number % 100 == 0:
                telemetry.log({"v": thread * 10_000 + 5_000 + number}, step=thread * 10_000 + 5_000 + number, timestamp=77)

    threads = [threading.Thread(target=many, args=(thread,)) for thread in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    joined = telemetry.sql("SELECT count(*) AS n, count(*) FILTER (WHERE v.value = s.value) AS same FROM v JOIN step s USING (ts)")
    assert joined == [{"n": 3 * 4_040, "same": 3 * 4_040}]


def test_a_clock_that_is_set_back_a_little_is_outrun_and_one_set_back_far_is_followed():
    times, series, other = _points.Times(), _points.Series("m"), _points.Series("o")
    at = lambda micros, *group: times.of(series, _points.Moment(micros, False, group))  # noqa: E731
    assert [at(t) for t in (10_000_000, 10_000_000, 9_500_000, 10_000_003)] == [10_000_000, 10_000_001, 10_000_002, 10_000_003]
    assert at(1_000_000) == 1_000_000
    # Of several points of one moment all go where all are free.
    assert times.of(other, _points.Moment(1_000_005, False)) == 1_000_005
    assert at(1_000_000, series, other) == 1_000_006


def test_two_objects_of_a_process_do_not_overwrite_each_other_either(served):
    objects = [Telemetry(address=served.file) for _ in range(10)]
    for number in range(2_000):
        objects[number % 10].add_data("shared", number)
    assert objects[0].sql("SELECT count(*) AS n FROM shared") == [{"n": 2_000}]


# The arguments of Dragon, and ours.


def test_dragons_scripts_run_unchanged(served):
    telemetry = Telemetry("http://localhost:4243/api/metrics", 5, None, address=served.file)
    telemetry.start(2)
    telemetry.start(telemetry_level=2)
    assert telemetry.level == 1
    telemetry.add_data("positional", 1.5, 1_700_000_000, 1, "gpu", 0)
    telemetry.add_data(ts_metric_name="named", ts_data=2, timestamp=None, telemetry_level=1, tagk="puid", tagv="17")
    telemetry.add_data("half_a_tag", 3, tagk="gpu")
    telemetry.add_data("too_detailed", 4, telemetry_level=2)
    telemetry.shutdown()
    telemetry.add_data("after", 5)
    assert telemetry.level == 0
    rows = telemetry.sql("SELECT metric, value, tags['gpu'] AS gpu, tags['puid'] AS puid FROM samples ORDER BY value")
    assert rows == [
        {"metric": "positional", "value": 1.5, "gpu": "0", "puid": None},
        {"metric": "named", "value": 2.0, "gpu": None, "puid": "17"},
        {"metric": "half_a_tag", "value": 3.0, "gpu": None, "puid": None},
    ]


def test_a_log_is_flattened_and_its_metrics_have_one_time_and_one_step(served):
    with Telemetry(address=served.file, tags={"model": "small"}) as telemetry:
        for step in range(3):
            telemetry.log({"train": {"loss": 1 / (step + 1), "opt": {"lr": 0.1}}, "note": "text"}, step=step, tags={"fold": 2})
    rows = telemetry.sql(
        'SELECT l.step, l.value AS loss, r.value AS lr, l.fold, l.model FROM "train/loss" l '
        'JOIN "train/opt/lr" r USING (ts) ORDER BY 1'
    )
    assert rows == [{"step": n, "loss": 1 / (n + 1), "lr": 0.1, "fold": "2", "model": "small"} for n in range(3)]
    assert telemetry.stats()["dropped_by_reason"] == {"not a number": 3}


def test_names_with_other_characters_are_stored_with_underscores_and_told_once(served, caplog):
    telemetry = Telemetry(address=served.file)
    for number in range(3):
        telemetry.add_data("acc @5 (größe)\ud800", number, tags={"my tag": "lr=0.1, x"})
    rows = telemetry.sql("SELECT DISTINCT metric, tags['my_tag'] AS tag FROM samples")
    assert rows == [{"metric": "acc__5__größe__", "tag": "lr_0.1__x"}]
    told = [record.getMessage() for record in caplog.records if "is stored as" in record.getMessage()]
    assert len(told) == 3, "the metric, the tag's name and its value"
    assert "tag my_tag='lr=0.1, x' is stored as 'lr_0.1__x'" in told[2]


def test_values_of_tags_that_become_the_same_are_told_each(served, caplog):
    telemetry = Telemetry(address=served.file, tags={"gpu": "cuda:0"})
    for value in ["a:b", "a=b", "a b"]:
        telemetry.add_data("m", 1, tags={"f": value})
    for value in ["'a:b'", "'a=b'", "'a b'", "'cuda:0'"]:
        assert value in caplog.text
    assert telemetry.sql("SELECT DISTINCT f, gpu FROM m") == [{"f": "a_b", "gpu": "cuda_0"}]


def test_the_service_takes_every_name_that_the_client_makes(served):
    """Letters that were composed in two ways are the same, vowel signs are kept, and other marks become underscores."""
    telemetry = Telemetry(address=served.file, process_tag=False)
    telemetry.add_data("marks", 1, tags={"s": "cafe\u0301"})
    telemetry.add_data("marks", 1, tags={"s": "café"})
    telemetry.add_data("marks", 1, tags={"s": "q\u0303"})
    telemetry.add_data("marks", 1, tags={"s": "ความเร็ว"})
    every = [chr(c) for c in range(0x20, 0x110000) if not 0xD800 <= c < 0xE000]
    # Many in one name, so that there are few names: a name that is refused says which character it was.
    for start in range(0, len(every), 60):
        telemetry.add_data("marks", 1, tags={"all": "".join(every[start : start + 60])})
    assert settled(telemetry)["dropped_by_reason"] == {}
    rows = telemetry.sql("SELECT DISTINCT s FROM marks WHERE s IS NOT NULL ORDER BY s")
    assert [row["s"] for row in rows] == ["café", "q_", "ความเร_ว"]


def test_a_tag_without_a_value_is_no_tag(served):
    telemetry = Telemetry(address=served.file, tags={"run": None}, process_tag=False)
    telemetry.add_data("m", 1, tags={"phase": None, "fold": 0})
    telemetry.add_data("m", 2, tagk="phase", tagv=None)
    tags = [row["tags"] for row in telemetry.sql("SELECT tags FROM samples ORDER BY value")]
    assert [sorted(tag) for tag in tags] == [["fold", "host"], ["host"]]


def test_each_reason_is_told_once_and_no_more_of_a_kind_than_the_limit_says(served, caplog):
    telemetry = Telemetry(address=served.file)
    for _ in range(3):
        telemetry.add_data("ms", 1, timestamp=time.time() * 1000)
        telemetry.add_data("r" * 600, 1)
        telemetry.add_data("text", "0.3")
        telemetry.add_data("none", None)
    counts = settled(telemetry)
    assert counts["dropped_by_reason"] == {"refused by the service": 6, "not a number": 6}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 4
    for reason in ["ahead of this machine's clock", "rrrr", "'text': a str is not a number", "'none'"]:
        assert any(reason in message for message in told), reason
    for number in range(2 * _sender.REASONS_MAX):
        telemetry.add_data("m" * number + " x", 1)
    told = [record.getMessage() for record in caplog.records if "is stored as" in record.getMessage()]
    assert len(told) == _sender.REASONS_MAX and "not reported" in told[-1] and "not told" not in told[-2]


def test_processes_of_several_jobs_share_a_service_and_stay_apart(served):
    script = "import sys, telem\nwith telem.Telemetry(address=sys.argv[1], name='of ' + sys.argv[2]) as t: t.log({'loss': 1.5})"
    url = f"http://{served.address}"
    for job, address in [({"TELEM_JOB": "first", "SLURM_JOB_ID": "7"}, url), ({"TELEM_JOB": "second"}, served.file), ({"SLURM_JOB_ID": "77"}, url)]:
        done = python(script, address, next(iter(job.values())), **job)
        assert done.returncode == 0, done.stderr
    rows = served.sql("SELECT job, name, value FROM loss JOIN jobs USING (job, node) ORDER BY job")
    assert [tuple(row.values()) for row in rows] == [("77", "of 77", 1.5), ("first", "of first", 1.5), ("second", "of second", 1.5)]


def test_a_service_is_found_wherever_the_process_goes(served, tmp_path):
    script = """
import os
from telem import Telemetry
telemetry = Telemetry({address})
telemetry.add_data("cd", 1)
os.chdir("/")
telemetry.add_data("cd", 2)
assert telemetry.flush(60) and telemetry.sent == 2, telemetry.stats()
import pickle
if {pickled}:
    again = pickle.loads(pickle.dumps(telemetry))
    again.add_data("cd", 3)
    assert again.flush(60) and again.sent == 3
"""
    at = f"import os; os.chdir({str(tmp_path)!r})\n"
    socket_path = json.loads(pathlib.Path(served.file).read_text())["socket"]
    nearby = os.path.relpath(socket_path, tmp_path)
    for address, environment in [
        ("", {"TELEM_CONNECTION": "db/connection.json"}),
        ("", {"TELEM_SOCKET": nearby}),
        ("address='db/connection.json'", {}),
        ("address=__import__('pathlib').Path('db/connection.json')", {}),
        (f"address='unix:{nearby}'", {}),
    ]:
        done = python(at + script.format(address=address, pickled=bool(address)), **environment)
        assert done.returncode == 0, done.stderr


def test_bad_tags_keep_no_job_from_starting(served, caplog):
    for tags in [5, "abc", [("a", 1)], {3: 4}]:
        telemetry = Telemetry(address=served.file, tags=tags)
        telemetry.add_data("m", 1)
    assert settled(telemetry)["sent"] == 4 and "are left out" in caplog.text


def test_bad_arguments_never_raise_and_each_is_counted(served, caplog):
    class Angry:
        def __getattribute__(self, name):
            raise RuntimeError("no")

    telemetry = Telemetry(address=served.file)
    bad = [
        lambda: telemetry.add_data("text", "0.3"),
        lambda: telemetry.add_data("none", None),
        lambda: telemetry.add_data("list", [1.0]),
        lambda: telemetry.add_data("complex", 1j),
        lambda: telemetry.add_data("huge", 2**63),
        lambda: telemetry.add_data("huge", -(2**63) - 1),
        lambda: telemetry.add_data("angry", Angry()),
        lambda: telemetry.add_data("", 1.0),
        lambda: telemetry.add_data(None, 1.0),
        lambda: telemetry.add_data(["m"], 1.0),
        lambda: telemetry.add_data("x" * 10_000, 1.0),
        lambda: telemetry.add_data("m", 1.0, "yesterday"),
        lambda: telemetry.add_data("m", 1.0, math.nan),
        lambda: telemetry.add_data("m", 1.0, -5),
        lambda: telemetry.add_data("m", 1.0, telemetry_level="high"),
        lambda: telemetry.add_data("m", 1.0, tags=7),
        lambda: telemetry.add_data("m", 1.0, tags={"k": ""}),
        lambda: telemetry.add_data("m", 1.0, tags={3: "v"}),
        lambda: telemetry.log(5),
        lambda: telemetry.log({"a": object()}),
    ]
    for call in bad:
        call()
    counts = settled(telemetry)
    assert (counts["dropped"], counts["sent"], counts["queued"]) == (len(bad), 0, 0)
    assert sum(counts["dropped_by_reason"].values()) == len(bad)
    told = [record.getMessage() for record in caplog.records]
    assert len(set(told)) == len(told) and len(told) <= len(bad), "one warning for each reason"


def test_a_logger_that_raises_and_warnings_that_are_errors_do_not_reach_the_loop(served, monkeypatch):
    def broken(*_):
        raise RuntimeError("broken handler")

    monkeypatch.setattr(_sender.log, "warning", broken)
    telemetry = Telemetry(address=served.file)
    telemetry.add_data("m", "no number")
    assert telemetry.dropped == 1
    done = python("from telem import Telemetry; Telemetry().add_data('m', None)", file=served.file, PYTHONWARNINGS="error")
    assert done.returncode == 0 and "Traceback" not in done.stderr


def test_a_service_that_is_silent_for_long_is_waited_for_as_long_as_flush_may(monkeypatch):
    """An answer that does not come in time is a service that is there: only one that cannot be reached is away."""
    monkeypatch.setattr(_sender, "ANSWER_S", 0.2)
    monkeypatch.setattr(_sender, "GRACE_S", 0.1)
    stub = Stub([])
    telemetry = Telemetry(address=stub.url)
    telemetry.add_data("m", 1)
    began = time.monotonic()
    assert not telemetry.flush(3) and time.monotonic() - began >= 3
    stub.answers += [(200, {}, '{"success": 1, "failed": 0, "errors": []}')]
    assert telemetry.flush(PATIENCE_S) and telemetry.sent == 1


def test_who_waits_is_no_point_that_waits(tmp_path):
    telemetry = Telemetry(address=str(tmp_path / "gone.json"))
    for number in range(3):
        telemetry.add_data("m", number)
        assert not telemetry.flush(0.01)
        assert telemetry.stats()["queued"] == number + 1


def test_a_flush_of_nothing_succeeds_however_little_time_it_has(served):
    telemetry = Telemetry(address=served.file)
    assert telemetry.flush(0)
    telemetry.add_data("m", 1)
    assert telemetry.flush(PATIENCE_S) and telemetry.flush(0) and telemetry.flush(-1) and telemetry.finalize(0)


def test_what_the_service_refuses_is_counted_with_its_reason(served, caplog):
    telemetry = Telemetry(address=served.file)
    telemetry.add_data("good", 1.0)
    telemetry.add_data("ahead", 1.0, time.time() + 7_200)
    telemetry.add_data("y" * 600, 1.0)
    counts = settled(telemetry)
    assert (counts["sent"], counts["dropped_by_reason"]) == (1, {"refused by the service": 2})
    assert "ahead of this machine's clock" in caplog.text


def test_levels_decide_what_is_kept(served, monkeypatch):
    monkeypatch.setenv("TELEM_CONNECTION", served.file)
    for said, kept in [("0", 0), ("1", 1), ("3", 3), ("9", 4), ("x", 1)]:
        monkeypatch.setenv("TELEM_LEVEL", said)
        telemetry = Telemetry()
        assert telemetry.level == kept
        for level in range(1, 6):
            telemetry.add_data(f"level_{said}", level, telemetry_level=level)
        telemetry.flush()
        assert stored(served, f"level_{said}") == kept


# Who a point belongs to.

WHO = """
import json
from telem import Telemetry
Telemetry().add_data("who", 1)
"""


@pytest.mark.parametrize(
    "environment, rank, has_pid",
    [
        ({}, None, True),
        ({"RANK": "3"}, "3", False),
        ({"SLURM_PROCID": "5", "SLURM_STEP_ID": "0"}, "5", False),
        ({"SLURM_PROCID": "0"}, "0", True),
        ({"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "RANK": "9"}, "9", False),
        ({"OMPI_COMM_WORLD_RANK": "2", "PMIX_RANK": "2"}, "2", False),
        ({"PMI_RANK": "4"}, "4", False),
        ({"RANK": "abc"}, None, True),
        ({"RANK": "3", "TELEM_PROCESS_TAG": "0"}, None, False),
    ],
)
def test_processes_are_told_apart_by_rank_or_pid(served, environment, rank, has_pid):
    assert python(WHO, file=served.file, **environment).returncode == 0
    row = served.sql("SELECT tags['rank'] AS rank, tags['pid'] AS pid, tags['host'] AS host, node FROM samples")[0]
    assert row["rank"] == rank
    assert (row["pid"] is not None) == has_pid
    assert row["host"] == row["node"]


def test_tags_of_the_caller_win(served):
    telemetry = Telemetry(address=served.file, tags={"host": "mine", "pid": "p", "run": 1})
    telemetry.add_data("tagged", 1, tags={"run": 2, "epoch": 3})
    assert telemetry.sql("SELECT host, pid, run, epoch FROM tagged") == [{"host": "mine", "pid": "p", "run": "2", "epoch": "3"}]


# Without a service, and with one that comes and goes.


def test_without_a_service_nothing_happens_and_little_is_loaded():
    script = """
import sys, threading
from telem import Telemetry
telemetry = Telemetry()
for i in range(1000):
    telemetry.add_data("m", i)
    telemetry.log({"a": i})
assert telemetry.sql("SELECT 1") == [] and telemetry.flush() and telemetry.finalize()
assert telemetry.level == 0 and threading.active_count() == 1 and "http.client" not in sys.modules
assert telemetry.stats()["sent"] == telemetry.dropped == 0
"""
    done = python(script)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("what", ["no file", "a broken file", "no process behind the socket", "nobody at the port"])
def test_a_service_that_is_not_there_is_counted_and_delays_nobody(tmp_path, what):
    file = tmp_path / "connection.json"
    if what == "a broken file":
        file.write_text("{")
    elif what != "no file":
        gone = {"socket": str(tmp_path / "gone.sock")} if "socket" in what else {"url": "http://127.0.0.1:1"}
        file.write_text(json.dumps({**gone, "node": "n1", "token": "t"}))
    script = """
import time
from telem import Telemetry
telemetry = Telemetry()
began = time.monotonic()
for i in range(1000):
    telemetry.add_data("m", i)
print(time.monotonic() - began)
assert telemetry.sql("SELECT 1") == []
"""
    began = time.monotonic()
    done = python(script, file=str(file))
    assert done.returncode == 0, done.stderr
    # Generous: a loaded machine, not a service that is waited for (a connection may take 5 s, an answer 15 s).
    assert float(done.stdout) < 4 and time.monotonic() - began < 20
    assert "does not answer" in done.stderr
    assert "1000 of 1000 points were dropped: not sent before the end 1000" in done.stderr


def test_a_server_that_is_killed_and_started_again_gets_everything(serve, tmp_path):
    data = tmp_path / "db"
    server = serve(data)
    telemetry = Telemetry(address=str(data / "connection.json"))
    logged = 0

    def some(count):
        nonlocal logged
        for _ in range(count):
            telemetry.add_data("survivor", logged)
            logged += 1

    some(500)
    # Its answer waits until everything before it is on disk: what a server acknowledged and lost is not the client's affair.
    server.put([{"metric": "m", "timestamp": 1, "value": 1, "tags": {"a": "b"}}], "?sync")
    server.kill()
    began = time.monotonic()
    some(500)
    assert telemetry.sql("SELECT 1 AS x") == []
    with pytest.raises(TelemetryError):
        telemetry.sql("SELECT 1 AS x", strict=True)
    assert not telemetry.flush(30)
    some(500)
    assert time.monotonic() - began < 20
    server = serve(data)
    some(500)
    counts = settled(telemetry)
    assert (counts["sent"], counts["dropped"], counts["queued"]) == (logged, 0, 0)
    assert counts["connections_lost"] > 0
    assert [row["value"] for row in server.sql("SELECT value FROM survivor ORDER BY value")] == list(range(logged))


def test_a_full_queue_drops_the_newest_and_counts_them(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(_sender, "QUEUE_POINTS_MAX", 1_000)
    data = tmp_path / "db"
    file = str(data / "connection.json")
    telemetry = Telemetry(address=file)
    for number in range(5_000):
        telemetry.add_data("full", number)
    counts = telemetry.stats()
    assert counts["sent"] == 0 and counts["dropped"] + counts["queued"] == 5_000
    assert counts["dropped_by_reason"] == {"queue full": counts["dropped"]}
    server = serve(data)
    counts = settled(telemetry)
    assert counts["sent"] + counts["dropped"] == 5_000
    assert 1_000 <= counts["sent"] == stored(server, "full") <= 2_000 + _sender.BATCH_POINTS_MAX
    # Later ones only where the thread made room meanwhile.
    assert server.sql("SELECT count(*) AS n FROM \"full\" WHERE value < 1000") == [{"n": 1_000}]


def test_an_old_connection_that_was_closed_is_no_outage(served):
    telemetry = Telemetry(address=served.file)
    telemetry.add_data("idle", 1)
    assert telemetry.flush()
    telemetry._sender._wire._connection.sock.shutdown(2)
    telemetry.add_data("idle", 2)
    assert telemetry.flush()
    assert (telemetry.sent, telemetry.stats()["connections_lost"]) == (2, 0)


def test_tcp_serves_where_the_socket_is_gone(served, tmp_path):
    connection = json.loads(pathlib.Path(served.file).read_text())
    connection["socket"] = str(tmp_path / "gone.sock")
    (tmp_path / "other.json").write_text(json.dumps(connection))
    for address in [str(tmp_path / "other.json"), connection["url"], f"unix:{json.loads(pathlib.Path(served.file).read_text())['socket']}"]:
        telemetry = Telemetry(address=address)
        telemetry.add_data("way", 1)
        assert telemetry.flush() and telemetry.sent == 1 and telemetry.dropped == 0


def test_a_service_that_hangs_delays_neither_the_loop_nor_the_end_for_long(served):
    served.process.send_signal(signal.SIGSTOP)
    script = """
import time
from telem import Telemetry
telemetry = Telemetry()
began = time.monotonic()
for i in range(100):
    telemetry.add_data("m", i)
print(time.monotonic() - began, telemetry.flush(0.5))
"""
    began = time.monotonic()
    try:
        done = python(script, file=served.file)
    finally:
        served.process.send_signal(signal.SIGCONT)
    took, flushed = done.stdout.split()
    assert (done.returncode, flushed) == (0, "False") and float(took) < 4
    # 0.5 s of flush and 5 s at the end, on a machine that may be loaded.
    assert time.monotonic() - began < 20
    assert "100 of 100 points were dropped: not sent before the end 100" in done.stderr


# Questions.


def test_answers_are_dicts_or_an_arrow_table_and_see_what_was_just_logged(served):
    import pyarrow

    telemetry = Telemetry(address=served.file)
    for number in range(100):
        telemetry.add_data("asked", number / 4)
        if number % 25 == 24:
            assert telemetry.sql("SELECT count(*) AS n, sum(value) AS total FROM asked") == [
                {"n": number + 1, "total": sum(range(number + 1)) / 4}
            ]
    table = telemetry.sql("SELECT ts, value, value_int FROM asked ORDER BY ts", format="arrow")
    assert isinstance(table, pyarrow.Table) and table.num_rows == 100
    assert table.schema.field("ts").type == pyarrow.timestamp("us", "UTC")
    assert telemetry.sql("SELECT value FROM asked WHERE value > 1000") == []
    assert telemetry.sql("SELECT value FROM asked WHERE value > 1000", format="arrow").num_rows == 0


def test_a_question_that_cannot_be_answered_raises_and_says_why(served):
    telemetry = Telemetry(address=served.file)
    with pytest.raises(SqlError, match="no_such_table"):
        telemetry.sql("SELECT * FROM no_such_table")
    with pytest.raises(SqlError, match="SQL"):
        telemetry.sql("SELEC 1")
    with pytest.raises(TypeError, match="a question is a text, not a NoneType"):
        telemetry.sql(None)
    with pytest.raises(ValueError, match="'dicts', 'arrow'"):
        telemetry.sql("SELECT 1", format="pandas")


class Stub:
    """A service that answers from a list, one answer a connection, and then hangs: (status, headers, body), or ``None``
    to hang up without one."""

    def __init__(self, answers):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.answers, self.asked, self.open = list(answers), 0, []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            stream, _ = self.listener.accept()
            self.open.append(stream)
            stream.recv(1 << 20)
            self.asked += 1
            if not self.answers:
                continue
            answer = self.answers.pop(0)
            if answer is not None:
                status, headers, body = answer
                head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                stream.sendall(f"HTTP/1.1 {status} x\r\n{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            stream.close()


BUSY = (503, {"Retry-After": "1"}, '{"error": {"message": "16 queries are running"}}')
ROWS = (200, {}, '[{"x": 1}]')


def test_a_service_that_is_busy_is_asked_again_until_it_answers():
    stub = Stub([BUSY, BUSY, BUSY, None, BUSY, ROWS])
    assert Telemetry(address=stub.url).sql("SELECT 1 AS x") == [{"x": 1}]
    assert stub.asked == 6


def test_no_answer_is_never_taken_for_an_empty_one():
    """Whoever steers by an answer must not steer by one that nobody gave."""
    for answers, said in [
        ([BUSY] * 1_000, "16 queries are running"),
        ([(503, {}, '{"error": {"message": "took longer than 30 s"}}')], "took longer than 30 s"),
        ([(401, {}, '{"error": {"message": "no token"}}')], "401: no token"),
        ([(500, {}, "bug")], "500: bug"),
        ([(200, {}, "[{")], "no answer that can be read"),
        ([None] * 1_000, "hung up"),
        ([], "did not answer within"),
    ]:
        stub = Stub(answers)
        with pytest.raises(TelemetryError, match=said) as raised:
            Telemetry(address=stub.url).sql("SELECT 1", timeout=0.6)
        assert not isinstance(raised.value, SqlError)


def test_a_service_that_is_away_has_no_rows_and_each_such_answer_is_counted(tmp_path):
    telemetry = Telemetry(address=str(tmp_path / "gone.json"))
    assert telemetry.stats()["unanswered"] == 0
    assert telemetry.sql("SELECT 1") == [] and telemetry.sql("SELECT 1", format="arrow").num_rows == 0
    assert telemetry.stats()["unanswered"] == 2
    with pytest.raises(TelemetryError, match="names no service"):
        telemetry.sql("SELECT 1", strict=True)


def test_a_question_takes_no_longer_than_it_may(served):
    telemetry = Telemetry(address=served.file)
    telemetry.add_data("m", 1)
    assert telemetry.flush()
    served.process.send_signal(signal.SIGSTOP)
    try:
        telemetry.add_data("m", 2)
        began = time.monotonic()
        with pytest.raises(TelemetryError, match="did not answer within 8 s"):
            telemetry.sql("SELECT 1", timeout=8)
        # What was logged before is waited for too, but not on top of it.
        assert time.monotonic() - began < 15
    finally:
        served.process.send_signal(signal.SIGCONT)


# Processes, threads, signals.


def test_a_child_of_a_fork_sends_its_own_points_and_none_of_its_parents(served):
    script = """
import json, os, sys
from telem import Telemetry
telemetry = Telemetry()
for i in range(300):
    telemetry.add_data("fork", i)
child = os.fork()
for i in range(200 if child else 100):
    telemetry.add_data("fork", i)
telemetry.flush(60)
# In one piece, also where nothing is buffered: both write to one pipe.
sys.stdout.write(json.dumps({"child": child == 0, **telemetry.stats()}) + "\\n")
sys.stdout.flush()
if child:
    os.waitpid(child, 0)
"""
    done = python(script, file=served.file)
    assert done.returncode == 0, done.stderr
    counts = {line["child"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert (counts[False]["sent"], counts[True]["sent"]) == (500, 100)
    rows = served.sql("SELECT pid, count(*) AS n FROM fork GROUP BY pid ORDER BY n")
    assert [row["n"] for row in rows] == [100, 500]


def test_a_fork_at_any_moment_leaves_the_child_with_whole_modules(served):
    """A fork while the thread imports copies half a module. So: whatever sending needs is loaded before there is a thread."""
    script = """
import sys, threading
from telem import Telemetry
telemetry = Telemetry()
assert threading.active_count() == 1
before = set(sys.modules)
telemetry.add_data("m", 1)
assert telemetry.flush(60) and telemetry.sent == 1
assert set(sys.modules) == before, set(sys.modules) - before
"""
    connection = json.loads(pathlib.Path(served.file).read_text())
    for way in [served.file, f"unix:{connection['socket']}", connection["url"]]:
        done = python(script.replace("Telemetry()", f"Telemetry(address={way!r})"), TELEM_TOKEN=connection["token"])
        assert done.returncode == 0, done.stderr


def log_some(telemetry, count):
    for number in range(count):
        telemetry.add_data("child", number)


def log_own(file, count):
    log_some(Telemetry(address=file), count)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_children_of_multiprocessing_lose_nothing_at_their_end(served, method):
    context = multiprocessing.get_context(method)
    telemetry = Telemetry(address=served.file)
    log_some(telemetry, 10)
    children = [context.Process(target=log_some, args=(telemetry, 500)) for _ in range(2)]
    children += [context.Process(target=log_own, args=(served.file, 500)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE_S)
        assert child.exitcode == 0
    telemetry.flush()
    rows = served.sql("SELECT pid, count(*) AS n FROM child GROUP BY pid ORDER BY n")
    assert [row["n"] for row in rows] == [10, 500, 500, 500, 500]


def test_a_pool_of_workers_loses_nothing_when_it_is_closed(served):
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.starmap(log_own, [(served.file, 100)] * 12)
        pool.close()
        pool.join()
    assert stored(served, "child") == 1_200


STORM = """
import sys
from telem import Telemetry
telemetry = Telemetry()
print("ready", flush=True)
sys.stdin.readline()
for i in range(int(sys.argv[1])):
    telemetry.add_data("storm", i)
telemetry.finalize(60)
print(telemetry.sent, telemetry.dropped, flush=True)
"""


def test_64_processes_at_once_lose_nothing_that_is_not_counted(served):
    each = 3_000
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TELEM_")}
    environment = {**clean, "TELEM_CONNECTION": served.file, "PYTHONPATH": str(CLIENT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    crowd = [subprocess.Popen([sys.executable, "-S", "-c", STORM, str(each)], env=environment, **pipes) for _ in range(64)]
    for one in crowd:
        assert one.stdout.readline() == "ready\n"
    for one in crowd:
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [one.communicate(timeout=PATIENCE_S)[0].split() for one in crowd]
    assert all(one.returncode == 0 for one in crowd)
    sent, dropped = sum(int(one[0]) for one in said), sum(int(one[1]) for one in said)
    assert sent + dropped == 64 * each
    assert stored(served, "storm") == sent
    assert len(served.sql("SELECT DISTINCT pid FROM storm")) == 64


def test_threads_lose_nothing(served):
    telemetry = Telemetry(address=served.file)
    threads = [threading.Thread(target=log_some, args=(telemetry, 2_000)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = settled(telemetry)
    assert (counts["sent"], counts["dropped"], stored(served, "child")) == (16_000, 0, 16_000)


def test_a_signal_handler_may_log_and_no_handler_is_touched(served):
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    telemetry = Telemetry(address=served.file)
    seen = 0

    def handler(*_):
        nonlocal seen
        seen += 1
        telemetry.add_data("from_signal", seen)
        telemetry.add_data("bad_from_signal", None)

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        until = time.monotonic() + 1
        while time.monotonic() < until:
            telemetry.add_data("main", 1.0)
            telemetry.add_data("bad", "x")
            telemetry.stats()
            time.sleep(0.0001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before[signal.SIGALRM])
    assert telemetry.flush(60) and seen > 10
    assert stored(served, "from_signal") == seen
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def test_a_handler_that_logs_while_the_thread_starts_starts_no_second_one(served, monkeypatch):
    """Two threads would send on one connection, and send points twice."""
    telemetry = Telemetry(address=served.file)
    started = []

    class Thread(threading.Thread):
        def start(self):
            started.append(self)
            # As a signal's handler does in here.
            telemetry.add_data("handler", 1)
            super().start()

    monkeypatch.setattr(_sender.threading, "Thread", Thread)
    telemetry.add_data("main", 1)
    assert telemetry.flush(PATIENCE_S) and telemetry.sent == 2 and len(started) == 1


@pytest.mark.parametrize("ending, code", [("", 0), ("sys.exit(7)", 7), ("raise RuntimeError('x')", 1), ("import atexit; atexit.register(lambda: None)", 0)])
def test_the_end_of_a_process_flushes_and_keeps_its_exit_code(served, ending, code):
    script = f"""
import sys
from telem import Telemetry
telemetry = Telemetry()
for i in range(1234):
    telemetry.add_data("ended", i)
{ending}
"""
    done = python(script, file=served.file)
    assert done.returncode == code
    assert stored(served, "ended") == 1_234


def test_points_logged_while_the_interpreter_ends_do_no_harm(served):
    script = """
import atexit
from telem import Telemetry
class Late:
    def __del__(self):
        self.telemetry.add_data("late", 2)
late = Late()
late.telemetry = Telemetry()
atexit.register(late.telemetry.add_data, "late", 1)
"""
    done = python(script, file=served.file)
    assert (done.returncode, "Traceback" in done.stderr, "Exception" in done.stderr) == (0, False, False)
    assert stored(served, "late") == 1


def test_it_travels_to_other_processes_by_pickle(served):
    telemetry = pickle.loads(pickle.dumps(Telemetry(address=served.file, tags={"a": 1}, level=2)))
    telemetry.add_data("pickled", 1, telemetry_level=2)
    assert telemetry.sql("SELECT a FROM pickled") == [{"a": "1"}]


# Pythons.

VERSIONS = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]


def interpreter(version):
    """A Python of that version, if this machine has one."""
    found = [f"python{version}", *sorted(map(str, pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))]
    for candidate in found:
        try:
            said = subprocess.run([candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True)
        except OSError:
            continue
        if said.returncode == 0 and said.stdout.strip() == version:
            return candidate
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_on_every_python_that_is_here(served, version):
    executable = interpreter(version)
    if executable is None:
        pytest.skip(f"no Python {version} on this machine")
    script = """
import multiprocessing, sys
from telem import Telemetry
def child(telemetry):
    telemetry.add_data("version", 2)
if __name__ == "__main__":
    telemetry = Telemetry()
    telemetry.log({"version": 1}, step=1, tags={"v": sys.version_info[1]})
    process = multiprocessing.get_context("fork").Process(target=child, args=(telemetry,))
    process.start(); process.join()
    assert telemetry.sql("SELECT value_int FROM version ORDER BY 1") == [{"value_int": 1}, {"value_int": 2}]
    assert telemetry.sent == 2 and telemetry.dropped == 0
"""
    done = python(script, executable=executable, file=served.file, PYTHONWARNINGS="error::SyntaxWarning")
    assert done.returncode == 0, done.stderr


def test_every_source_is_python_3_9():
    import ast

    for source in (SOURCES / "telem").rglob("*.py"):
        ast.parse(source.read_text(), feature_version=(3, 9))


def test_pip_installs_it_without_a_network(tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    command = [*pip, "--target", str(tmp_path), str(SOURCES)]
    # A machine that is busy compiles libtelem for some minutes.
    done = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    installed = {path.name for path in (tmp_path / "telem").iterdir()}
    assert {path.name for path in (SOURCES / "telem").iterdir() if path.suffix == ".py"} | {"py.typed"} <= installed
    run = subprocess.run([sys.executable, "-c", "import telem; print(telem.__version__)"], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert run.stdout.strip() == telem.__version__
