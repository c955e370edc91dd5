"""`telem import` of what the real packages tensorboard, tensorboardX and wandb write, and event files of `telem export`
as TensorBoard's own reader finds them: values and steps in equal values and steps out. Databases of Dragon's telemetry
are written by Python's sqlite3, statement by statement as Dragon does it."""

import json
import math
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys

import numpy
import pandas
import polars
import pyarrow
import pytest
from conftest import PATIENCE_S, TELEM
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util
from tensorboardX import SummaryWriter

EVERYTHING = {"scalars": 0, "tensors": 0}


def imported(*arguments):
    """What `telem import` says."""
    done = subprocess.run([TELEM, "import", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stderr


def sql(telem, save, text):
    return json.loads(telem("sql", save, text, "--format", "json"))


def by_step(telem, save, metric, more="true"):
    """(step, value, microseconds) of a metric in the order of times."""
    tags = sql(telem, save, f"SELECT DISTINCT map_keys(tags) AS keys FROM series WHERE metric = '{metric}'")
    keys = {key for row in tags for key in row["keys"]}
    using = ", ".join(["ts", *keys])
    text = f'SELECT s.value_int AS step, m.value AS value, CAST(ts AS BIGINT) AS us FROM "{metric}" m JOIN step s USING ({using}) WHERE {more} ORDER BY ts'
    return [(row["step"], math.nan if row["value"] is None else row["value"], row["us"]) for row in sql(telem, save, text)]


def scalars(directory):
    """(step, value, microseconds) of every tag, as TensorBoard reads them."""
    events = EventAccumulator(str(directory), size_guidance=EVERYTHING).Reload()
    found = {tag: [(e.step, e.value, round(e.wall_time * 1e6)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    for tag in events.Tags()["tensors"]:
        values = [(e.step, tensor_util.make_ndarray(e.tensor_proto), round(e.wall_time * 1e6)) for e in events.Tensors(tag)]
        if all(value.shape in ((), (1,)) and value.dtype.kind in "fiub" for _, value, _ in values):
            found[tag] = [(step, float(value.reshape(())), us) for step, value, us in values]
    return found


def same(found, expected):
    """Equal, NaN included; the clock of an event is a double, which at today's times is good to a microsecond."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one[0] == other[0] and numpy.array_equal(one[1], other[1], equal_nan=True), (one, other)
        assert abs(one[2] - other[2]) <= 1, (one, other)


def test_scalars_of_tensorboardx_come_with_their_steps(telem, tmp_path):
    logs = tmp_path / "lightning_logs"
    for run, rate in [("", 1.0), ("a/train", 0.1), ("a/val", 3e-4)]:
        with SummaryWriter(logs / run) as writer:
            for step in range(200):
                writer.add_scalar("loss/train", rate / (step + 1), step * 10)
            writer.add_scalar("lr", rate, 0)
            writer.add_scalar("odd", math.nan, 1)
            writer.add_scalar("odd", math.inf, 2)
            writer.add_scalar("one", 1.5, 3)
            writer.add_scalar("step", 4.5, 4)
            # Many values of one moment.
            for step in range(5):
                writer.add_scalar("burst", step, step, walltime=1767225600.5)
            writer.add_histogram("weights", numpy.arange(10), 1)
            writer.add_text("note", "hello", 1)
    said = imported(logs, "--save", tmp_path / "save")
    assert "metric 'step' becomes step_2: its name is taken" in said
    assert "summaries that are no scalars: note" in said and "weights" in said, said
    clean = {"step": "step_2"}
    for run in ["", "a/train", "a/val"]:
        expected = scalars(logs / run) if run else scalars(next(logs.glob("events*")))
        assert len(expected) == 6
        where = f"run = '{run}'" if run else "run IS NULL"
        for tag, values in expected.items():
            found = by_step_of_run(telem, tmp_path / "save", clean.get(tag, tag), where)
            if tag == "burst":
                assert [(step, value) for step, value, _ in found] == [(step, value) for step, value, _ in values]
                assert [us - 1767225600500000 for _, _, us in found] == [0, 1, 2, 3, 4]
            else:
                same(found, values)


def by_step_of_run(telem, save, metric, where):
    text = f'SELECT s.value_int AS step, m.value AS value, CAST(m.ts AS BIGINT) AS us FROM (SELECT * FROM "{metric}" WHERE {where}) m JOIN (SELECT * FROM step WHERE {where}) s ON m.ts = s.ts ORDER BY us'
    out = save.parent / "rows.parquet"
    telem("sql", save, text, "-o", out)
    return [tuple(row.values()) for row in polars.read_parquet(out).to_dicts()]


def test_tensors_of_one_number_are_scalars_in_every_type(telem, tmp_path):
    logs = tmp_path / "logs"
    writer = EventFileWriter(str(logs))
    types = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
    metadata = summary_pb2.SummaryMetadata(plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="scalars"))
    values = {}
    for step, number in enumerate([0, 1, 0.1, 100, -3]):
        for name in types:
            if number < 0 and name.startswith(("u", "b")):
                continue
            value = numpy.array(number).astype(name)
            for shape in ["scalar", "one"]:
                tensor = tensor_util.make_tensor_proto(value if shape == "scalar" else value.reshape(1))
                tag = f"{name} [one]" if shape == "one" else name
                summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=metadata)])
                writer.add_event(event_pb2.Event(wall_time=1767225600 + step, step=step, summary=summary))
                values.setdefault(tag, []).append((step, float(value)))
    several = tensor_util.make_tensor_proto(numpy.zeros(3))
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="several", tensor=several)])
    writer.add_event(event_pb2.Event(wall_time=1767225600, step=0, summary=summary))
    writer.close()
    said = imported(logs, "--save", tmp_path / "save")
    assert "left out 1 summaries that are no scalars: several" in said
    assert "metric 'int8 [one]' becomes int8__one_" in said
    values = {name.replace(" [one]", "__one_"): found for name, found in values.items()}
    for metric, expected in values.items():
        found = by_step_of_run(telem, tmp_path / "save", metric, "true")
        assert [(step, value) for step, value, _ in found] == expected, metric


def test_settings_of_runs_come_along(telem, tmp_path):
    with SummaryWriter(tmp_path / "logs") as writer:
        writer.add_hparams({"lr": 3e-4, "depth": 12, "opt": "adam", "amp": True}, {"best": 0.5}, name="trial")
    imported(tmp_path / "logs", "--save", tmp_path / "save", "--config", "lr=1", "--name", "mine")
    run = json.loads(telem("ls", tmp_path / "save", "--json"))[0]
    assert run["name"] == "mine" and run["state"] == "ended"
    assert run["settings"] == {"lr": 1, "depth": 12, "opt": "adam", "amp": True}


def test_a_torn_event_file_gives_what_is_before_the_tear(telem, tmp_path):
    writer = EventFileWriter(str(tmp_path / "logs"))
    for step in range(10):
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag="loss", simple_value=step)])
        writer.add_event(event_pb2.Event(wall_time=1767225600 + step, step=step, summary=summary))
    writer.close()
    [file] = (tmp_path / "logs").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-5])
    said = imported(file, "--save", tmp_path / "torn")
    assert "record 11: the file ends within the record" in said and "left out: 1 broken record" in said, said
    assert [value for _, value, _ in by_step_of_run(telem, tmp_path / "torn", "loss", "true")] == list(range(9))
    damaged = bytearray(whole)
    damaged[-5] ^= 1
    file.write_bytes(damaged)
    assert "record 11: the checksum is not that of the data" in imported(file, "--save", tmp_path / "damaged")


def test_event_files_of_telem_are_read_by_tensorboard_and_come_back(telem, tmp_path):
    logs = tmp_path / "logs"
    for run in ["train", "val"]:
        with SummaryWriter(logs / run) as writer:
            for step in range(50):
                writer.add_scalar("loss", 1 / (step + 1), step * 7)
                writer.add_scalar("acc", step, step * 7)
    imported(logs, "--save", tmp_path / "save")
    telem("export", tmp_path / "save", "--tensorboard", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train", "val"]
    for run in ["train", "val"]:
        expected, found = scalars(logs / run), scalars(tmp_path / "out" / run)
        assert found.keys() == expected.keys() == {"loss", "acc"}
        for tag in found:
            same(found[tag], expected[tag])


def test_metrics_without_steps_count_seconds(telem, tmp_path):
    rows = "".join(f"{1767225600 + at},n{at % 2},{at}.25\n" for at in range(20))
    (tmp_path / "log.csv").write_text("ts,host,load\n" + rows)
    imported(tmp_path / "log.csv", "--save", tmp_path / "save")
    telem("export", tmp_path / "save", "--tensorboard", tmp_path / "out")
    for host in (0, 1):
        found = scalars(tmp_path / "out" / f"host=n{host}")
        assert found == {"load": [(at, at + 0.25, (1767225600 + at) * 1_000_000) for at in range(host, 20, 2)]}


WANDB = """
import math, sys, time, wandb
sampled = wandb.Settings(x_stats_sampling_interval=1, x_stats_buffer_size=100)
run = wandb.init(project="p", name="lr 3e-4", dir=sys.argv[1], tags=["sweep7"], config={"lr": 3e-4, "model": {"depth": 12}, "layers": [1, 2]}, settings=sampled)
for step in range(300):
    run.log({"loss": 1 / (step + 1), "train/acc": step, "nested": {"a": 0.1 + step}, "text": "x" * 500})
run.log({"late": 7, "odd": math.nan, "flag": True}, step=1000)
run.config.update({"batch": 64})
run.summary["best"] = 0.1
# What it samples of the machine comes from a process of its own, after a while.
while len(run._system_metrics) <= 3:
    time.sleep(0.05)
run.finish(exit_code=3)
"""


def test_an_offline_run_of_wandb_comes_with_history_settings_and_name(telem, tmp_path):
    environment = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", WANDB, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode in (0, 3), done.stderr
    [directory] = (tmp_path / "wandb").glob("offline-run-*")
    save = tmp_path / "save"
    said = imported(directory, "--save", save)
    assert "left out 300 values of the history that are no numbers: text" in said
    assert "left out:" not in said, said
    for metric, expected in {
        "loss": [(step, 1 / (step + 1)) for step in range(300)],
        "train/acc": [(step, step) for step in range(300)],
        "nested.a": [(step, 0.1 + step) for step in range(300)],
        "late": [(1000, 7)],
        "flag": [(1000, 1)],
    }.items():
        assert [(step, value) for step, value, _ in by_step_of_run(telem, save, metric, "true")] == expected, metric
    assert [math.isnan(value) for _, value, _ in by_step_of_run(telem, save, "odd", "true")] == [True]
    run = json.loads(telem("ls", save, "--json"))[0]
    assert (run["name"], run["state"], run["exit_code"]) == ("lr 3e-4", "failed", 3)
    assert run["settings"] == {"lr": 3e-4, "model.depth": 12, "layers": "[1,2]", "batch": 64}
    assert run["tags"]["wandb.tags"] == "sweep7" and run["tags"]["wandb.project"] == "p"
    assert sql(telem, save, "SELECT count(*) AS n FROM metrics WHERE metric LIKE 'wandb.%'")[0]["n"] > 3
    # Torn: what is before it is taken.
    [file] = directory.glob("run-*.wandb")
    torn = tmp_path / "torn.wandb"
    whole = file.read_bytes()
    torn.write_bytes(whole[: whole.index(b"x" * 500, len(whole) // 2) + 250])
    said = imported(torn, "--save", tmp_path / "torn")
    assert "the file ends within the record" in said and "left out: 1 broken record" in said, said
    steps = [step for step, _, _ in by_step_of_run(telem, tmp_path / "torn", "loss", "true")]
    assert steps == list(range(len(steps))) and 20 < len(steps) < 300


def test_tables_of_pandas_and_polars_are_imported(telem, tmp_path):
    times = pandas.date_range("2026-01-01", periods=50, freq="250ms", tz="UTC")
    table = pandas.DataFrame({"loss": numpy.arange(50) / 3, "step": numpy.arange(50), "phase": pandas.Categorical(["a", "b"] * 25)}, index=times)
    table.index.name = "when"
    table.to_csv(tmp_path / "index.csv")
    table.to_parquet(tmp_path / "index.parquet")
    table.to_feather(tmp_path / "index.feather")
    table.reset_index().to_json(tmp_path / "rows.jsonl", orient="records", lines=True, date_format="iso", date_unit="us", double_precision=15)
    polars.from_pandas(table.reset_index()).write_parquet(tmp_path / "polars.parquet", compression="snappy")
    for name in ["index.csv", "index.parquet", "index.feather", "polars.parquet"]:
        save = tmp_path / f"save-{name}"
        imported(tmp_path / name, "--save", save)
        found = by_step(telem, save, "loss")
        same(found, [(at, at / 3, 1767225600_000_000 + at * 250_000) for at in range(50)])
    imported(tmp_path / "rows.jsonl", "--save", tmp_path / "json", "--time", "when")
    assert [step for step, _, _ in by_step(telem, tmp_path / "json", "loss")] == list(range(50))


DRAGON = """
import json, os, signal, sqlite3, sys

class Dragon:
    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.execute("CREATE TABLE IF NOT EXISTS datapoints (metric varchar(50), timestamp varchar(30), value real, tags json)")
        self.db.execute("CREATE TABLE IF NOT EXISTS flags (id INTEGER PRIMARY KEY CHECK (id = 1), is_shutdown BLOB)")
        self.db.execute("INSERT OR REPLACE INTO flags VALUES (1, ?)", (b"\\x80\\x04cos\\nsystem\\n.",))
        self.db.commit()

    def add(self, metric, time, value, tags=None):
        self.db.execute("INSERT INTO datapoints VALUES (?, ?, ?, ?)", (metric, str(time), value, json.dumps(tags)))
        self.db.commit()

    def cleanup(self, start):
        self.db.execute("DELETE FROM datapoints WHERE CAST(timestamp AS INTEGER) < ?", (start,))
        self.db.commit()
"""
exec(DRAGON)
T0 = 1722010526


def points(telem, save, metric):
    """(host, microseconds, value) of a metric."""
    rows = sql(telem, save, f'SELECT host, CAST(ts AS BIGINT) AS us, value FROM "{metric}" ORDER BY host, ts')
    return [(row["host"], row["us"], row["value"]) for row in rows]


def dragon_file(path, rows=20_000):
    """A file with so many points of one metric in one transaction, 40 a second."""
    dragon = Dragon(path)
    values = ((str(T0 + at // 40), at) for at in range(rows))
    dragon.db.executemany("INSERT INTO datapoints VALUES ('m', ?, ?, 'null')", values)
    dragon.db.commit()
    dragon.db.close()
    return [("n1", (T0 + at // 40) * 1_000_000 + at % 40, float(at)) for at in range(rows)]


def test_points_of_a_dragon_come_with_their_types_and_tags(telem, tmp_path):
    dragon = Dragon(tmp_path / "ts_alice_n1.db")
    for at, value in enumerate([0.58, 21, True, "7.5", 1e300, math.inf]):
        dragon.add("load_average", T0, value)
        dragon.add("slow-gpu", T0 + at, value, {"gpu": at % 2, "host": "n1"})
    dragon.add("m", T0 + 0.25, 1.0, {"gpu id": "cuda:0"})
    for refused in ["abc", None, math.nan]:
        dragon.add("m", T0, refused)
    said = imported(tmp_path / "ts_alice_n1.db", "-o", tmp_path / "save")
    assert "left out: 3 values that are no numbers" in said and "tag 'gpu id' becomes gpu_id" in said, said
    expected = [0.58, 21.0, 1.0, 7.5, 1e300]
    found = points(telem, tmp_path / "save", "load_average")
    assert found[:5] == [("n1", T0 * 1_000_000 + at, value) for at, value in enumerate(expected)] and len(found) == 6
    rows = sql(telem, tmp_path / "save", 'SELECT gpu, count(*) AS n FROM "slow-gpu" GROUP BY gpu ORDER BY gpu')
    assert rows == [{"gpu": "0", "n": 3}, {"gpu": "1", "n": 3}]
    assert points(telem, tmp_path / "save", "m") == [("n1", T0 * 1_000_000 + 250_000, 1.0)]


def test_dumps_of_a_running_dragon_overlap_and_count_once(telem, tmp_path):
    dragon = Dragon(tmp_path / "ts_jane_doe_n1.db")
    expected = []
    for at in range(120):
        dragon.add("m", T0 + at // 6, at % 3)
        expected.append(("n1", (T0 + at // 6) * 1_000_000 + at % 6, float(at % 3)))
        if at in (40, 80):
            # As rsync does it.
            (tmp_path / f"ts_jane_doe_n1_20240726_1615{at}.db").write_bytes((tmp_path / "ts_jane_doe_n1.db").read_bytes())
            dragon.cleanup(T0 + at // 6 - 3)
    files = sorted(tmp_path.glob("*.db"))
    for case, order in enumerate([files, files[::-1], files + files]):
        save = tmp_path / f"save-{case}"
        imported(*order, "-o", save)
        assert points(telem, save, "m") == expected
        assert [path.name for path in save.iterdir()] == ["n1"]
    # Merged by Dragon, which doubles what overlaps, and doubles all when it is done again.
    merged = sqlite3.connect(tmp_path / "merged.db")
    merged.execute("CREATE TABLE doe (metric varchar(50), timestamp varchar(30), value real, tags json)")
    for file in [*files[1:], files[0]] * 2:
        rows = sqlite3.connect(file).execute("SELECT * FROM datapoints").fetchall()
        merged.executemany("INSERT INTO doe VALUES (?, ?, ?, ?)", rows)
    merged.commit()
    imported(tmp_path / "merged.db", "-o", tmp_path / "merged", "--node", "n1")
    assert points(telem, tmp_path / "merged", "m") == expected


def test_a_database_that_was_cut_off_gives_the_rows_before(telem, tmp_path):
    file = tmp_path / "ts_alice_n1.db"
    expected = dragon_file(file)
    whole = file.read_bytes()
    counts = []
    for case, share in enumerate([0.1, 0.5, 0.9, 0.999]):
        file.write_bytes(whole[: int(len(whole) * share) + 7])
        said = imported(file, "-o", tmp_path / f"save-{case}")
        found = points(telem, tmp_path / f"save-{case}", "m")
        assert found == expected[: len(found)] and len(found) > (share - 0.05) * len(expected)
        assert f"row {len(found) + 1}: the rows from {len(found) + 1:,} on are not there" in said, said
        counts.append(len(found))
    assert counts == sorted(counts)


def test_a_write_that_a_kill_stopped_is_undone_and_the_files_stay_as_they_are(telem, tmp_path):
    file = tmp_path / "ts_alice_n1.db"
    expected = dragon_file(file)
    kill = "db = sqlite3.connect(sys.argv[1]); db.execute('PRAGMA cache_size = 5'); db.execute('DELETE FROM datapoints WHERE rowid % 2')\nos.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run([sys.executable, "-c", DRAGON + kill, str(file)], timeout=PATIENCE_S)
    assert killed.returncode == -signal.SIGKILL
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() == {"ts_alice_n1.db", "ts_alice_n1.db-journal"}
    said = imported(file, "-o", tmp_path / "save")
    assert "a write to it was not completed: it is read in a copy" in said
    assert points(telem, tmp_path / "save", "m") == expected
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}


def test_a_database_that_another_program_keeps_locked_is_refused(tmp_path):
    file = tmp_path / "ts_alice_n1.db"
    dragon_file(file, 10)
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    done = subprocess.run([TELEM, "import", file, "-o", tmp_path / "save"], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1 and "another process writes to it and has had it locked for 5 s" in done.stderr
    assert not (tmp_path / "save").exists()


def test_a_dragon_file_of_two_gigabytes_is_read_where_its_rows_are(telem, tmp_path):
    file = tmp_path / "ts_alice_n1.db"
    expected = dragon_file(file, 1_000)
    # A hole, as a file has that was never given back what was cleaned up.
    os.truncate(file, 2 << 30)
    imported(file, "-o", tmp_path / "save")
    assert points(telem, tmp_path / "save", "m") == expected


def test_a_dragon_that_still_runs_goes_on_writing(telem, tmp_path):
    file = tmp_path / "ts_alice_n1.db"
    before = dragon_file(file)
    write = "dragon, at = Dragon(sys.argv[1]), 0\nwhile True:\n    dragon.add('late', 1722020000 + at, at); at += 1\n    if at == 1: print('writes', flush=True)"
    with subprocess.Popen([sys.executable, "-c", DRAGON + write, str(file)], stdout=subprocess.PIPE, text=True) as writer:
        try:
            assert writer.stdout.readline() == "writes\n"
            imported(file, "-o", tmp_path / "save")
            assert writer.poll() is None
        finally:
            writer.kill()
    assert points(telem, tmp_path / "save", "m") == before
    late = points(telem, tmp_path / "save", "late")
    assert late == [("n1", (1722020000 + at) * 1_000_000, float(at)) for at in range(len(late))] and late
