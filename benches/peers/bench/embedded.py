"""Databases that are libraries: DuckDB, ClickHouse (chDB), and SQLite with the schema of Dragon's telemetry. Each runs in a
process of its own, which takes orders as lines of JSON, so that its CPU time and memory can be told from ours:
`python -m bench.embedded NAME`.

Nothing goes over HTTP here; rows are fetched into Python, which for many rows is most of the cost.
"""

import json
import pathlib
import sqlite3
import subprocess
import sys
import time

from . import machine
from .questions import Question
from .server import Failed, Process

#: Tags of the synthetic data, in order.
TAGS = ("disk", "gpu", "host", "iface")


class Embedded:
    """The process, from outside."""

    def __init__(self, name, log):
        self.name = name
        command = [sys.executable, "-m", "bench.embedded", name]
        self.process = Process(command, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, what, **order):
        child = self.process.child
        child.stdin.write(json.dumps({"do": what, **order}) + "\n")
        child.stdin.flush()
        line = child.stdout.readline()
        if not line:
            raise Failed(f"{self.name} ended: {self.process.tail()}")
        said = json.loads(line)
        if "error" in said:
            raise Failed(f"{self.name}: {what}: {said['error']}")
        return said

    def end(self):
        self.process.child.stdin.close()
        self.process.end()


def columns(directory):
    """What `telem-load columns` wrote: numbers of series, milliseconds, values; and the series."""
    import numpy

    directory = pathlib.Path(directory)
    read = lambda name, kind: numpy.fromfile(directory / name, dtype=kind)
    lines = (directory / "series.tsv").read_text().splitlines()
    series = [(metric, json.loads(tags)) for metric, _, tags in (line.partition("\t") for line in lines)]
    return read("series.u32", "<u4"), read("ts.i64", "<i8"), read("value.f64", "<f8"), series


def timed(fetch, warm, times):
    """What `times` repetitions of a question took, and the rows of the last one."""
    for _ in range(warm):
        fetch()
    walls, rows, cpu = [], [], time.process_time()
    for _ in range(times):
        began = time.monotonic()
        rows = fetch()
        walls.append(time.monotonic() - began)
    return {"cpu_s": time.process_time() - cpu, "walls": walls, "values": len(rows)}, rows


def answer(question, rows):
    """Rows in normal form, see questions.py."""
    match question.name:
        case "q1" | "q2":
            return dict(rows)
        case "q3" | "q4" | "q7" | "q8":
            return {(name, at): value for name, at, value in rows}
        case "q5":
            # A tag that is not there is NULL, or empty where that costs less.
            return {
                (metric, *((key, value) for key, value in zip(TAGS, tags) if value)): last for metric, *tags, last in rows
            }
        case "q6":
            return {"p99": rows[0][0]}


class Duck:
    """DuckDB: a table in the order of arrival, then one sorted by metric, tags and time; or the Parquet that telem exported."""

    def __init__(self):
        import duckdb

        self.duckdb = duckdb
        self.connection = None

    def open(self, path):
        self.connection = self.duckdb.connect(path)
        self.connection.execute("SET threads = 2; SET TimeZone = 'UTC'; SET preserve_insertion_order = true")
        return {"version": self.duckdb.__version__}

    def load(self, columns_directory, rows_at_once=500_000):
        ids, times, values, series = columns(columns_directory)
        self.connection.execute("CREATE TABLE arrived (id UINTEGER, ms BIGINT, value DOUBLE)")
        self._series(series)
        began, cpu = time.monotonic(), time.process_time()
        for at in range(0, len(ids), rows_at_once):
            end = at + rows_at_once
            batch = {"id": ids[at:end], "ms": times[at:end], "value": values[at:end]}
            self.connection.execute("INSERT INTO arrived SELECT id, ms, value FROM batch")
        self.connection.execute("CHECKPOINT")
        return {"samples": len(ids), "cpu_s": time.process_time() - cpu, "seconds": time.monotonic() - began}

    def _series(self, series):
        keys = sorted({key for _, tags in series for key in tags})
        listed = "".join(f', "{key}" VARCHAR' for key in keys)
        self.connection.execute(f"CREATE TABLE series (id UINTEGER, metric VARCHAR{listed})")
        rows = [(at, metric, *(tags.get(key) for key in keys)) for at, (metric, tags) in enumerate(series)]
        import numpy

        batch = {"id": numpy.array([row[0] for row in rows], dtype="<u4")}
        for at, key in enumerate(["metric", *keys], 1):
            batch[key] = numpy.array([row[at] for row in rows], dtype=object)
        names = ", ".join(f'"{name}"' for name in batch)
        self.connection.execute(f"INSERT INTO series SELECT {names} FROM batch")
        self.keys = keys

    def merge(self, path):
        """The same rows with their names, sorted, in a database of their own."""
        began, cpu = time.monotonic(), time.process_time()
        keys = "".join(f', "{key}"' for key in self.keys)
        self.connection.execute(f"ATTACH '{path}' AS sorted")
        self.connection.execute(
            f"CREATE TABLE sorted.samples AS SELECT metric{keys}, make_timestamp(ms * 1000) AS ts, value "
            f"FROM arrived JOIN series USING (id) ORDER BY metric{keys}, ts"
        )
        self.connection.execute("CHECKPOINT sorted")
        return {"cpu_s": time.process_time() - cpu, "seconds": time.monotonic() - began}

    def _sql(self, question, source):
        time_range = (
            f"ts >= make_timestamp({question.start_ms * 1000}) AND ts < make_timestamp({question.end_ms * 1000})"
        )
        if source != "samples":
            source = f"read_parquet('{source}')"
            time_range = time_range.replace("make_timestamp(", "to_timestamp(1e-6 * ")
        one = f"FROM {source} WHERE metric = '{question.metric}'"
        bucket = "epoch_ms(time_bucket(INTERVAL '{}', ts))"
        five = ", ".join(f"'{metric}'" for metric in question.metrics)
        return {
            "q1": f"SELECT epoch_ms(ts), value {one} AND host = '{question.host}' AND {time_range} ORDER BY ts",
            "q2": f"SELECT {bucket.format('1 minute')} AS t, avg(value) {one} AND {time_range} GROUP BY t ORDER BY t",
            "q3": f"SELECT host, {bucket.format('5 minutes')} AS t, max(value) {one} AND {time_range} GROUP BY ALL",
            "q4": f"SELECT metric, {bucket.format('1 minute')} AS t, avg(value) FROM {source} "
            f"WHERE metric IN ({five}) AND {time_range} GROUP BY ALL",
            "q5": f"SELECT metric, {', '.join(TAGS)}, arg_max(value, ts) FROM {source} GROUP BY ALL",
            "q6": f"SELECT quantile_cont(value, 0.99) {one}",
            "q7": f"SELECT host, epoch_ms(ts), value {one} AND value > 90",
            "q8": f"SELECT host, {bucket.format('1 minute')} AS t, avg(value) {one} AND {time_range} GROUP BY ALL",
        }[question.name]

    def ask(self, question, source, warm=0, times=1, show=False):
        question = Question(**question)
        sql = self._sql(question, source)
        said, rows = timed(lambda: self.connection.execute(sql).fetchall(), warm, times)
        if show:
            said["answer"] = list(answer(question, rows).items())
        return said

    def percentiles(self, question, source):
        """What q6 is to databases without a percentile over several series: by series; and that of the nearest rank."""
        metric = Question(**question).metric
        one = f"FROM read_parquet('{source}') WHERE metric = '{metric}'"
        by_series = f"SELECT max(p) FROM (SELECT quantile_cont(value, 0.99) AS p {one} GROUP BY host)"
        nearest = f"SELECT list_sort(list(value))[floor(count(*) * 0.99 + 0.5)::BIGINT] {one}"
        return {
            "greatest_of_series": self.connection.execute(by_series).fetchone()[0],
            "nearest_rank": self.connection.execute(nearest).fetchone()[0],
        }

    def same(self, columns_directory, parquet):
        """Whether an export has every sample that was made and no other, to the last bit: by a hash over each row, summed."""
        ids, times, values, series = columns(columns_directory)
        self._series(series)
        names = self.connection.execute(f"DESCRIBE SELECT * FROM '{parquet}'").fetchall()
        tags = [name for name, *_ in names if name not in ("metric", "node", "ts", "value", "value_int")]
        if sorted(tags) != self.keys and sorted(tags) != sorted({*self.keys, "host"}):
            return {"same": False, "why": f"tags {tags} instead of {self.keys}"}
        made = {"id": ids, "ms": times, "value": values}
        keys = "".join(f', "{key}"' for key in self.keys)
        figures = "count(*), sum(hash(metric{}, {}, value))::VARCHAR, count(DISTINCT metric)"
        first = self.connection.execute(
            f"SELECT {figures.format(keys, 'ms * 1000')} FROM made JOIN series USING (id)"
        ).fetchone()
        second = self.connection.execute(f"SELECT {figures.format(keys, 'epoch_us(ts)')} FROM '{parquet}'").fetchone()
        return {"same": first == second, "samples": first[0], "exported": second[0]}


class ClickHouse:
    """ClickHouse in process, as chDB packages it: a table in the order of arrival, then one whose key is metric, tags and
    time. Of its codecs for values ZSTD alone makes this data smallest, smaller than after Delta, Gorilla or FPC. A tag that is
    not there is empty: a key with NULL costs more."""

    def open(self, path):
        import chdb
        from chdb import session

        self.session = session.Session(path)
        for setting in ("max_threads = 2", "max_insert_threads = 2", "session_timezone = 'UTC'"):
            self.session.query(f"SET {setting}")
        self.session.query("CREATE DATABASE IF NOT EXISTS bench")
        return {"version": f"{chdb.engine_version} (chDB {chdb.__version__})"}

    def load(self, columns_directory, rows_at_once=500_000):
        import pyarrow

        ids, times, values, series = columns(columns_directory)
        self.session.query(
            "CREATE TABLE bench.arrived (id UInt32, ms Int64, value Float64) ENGINE = MergeTree ORDER BY tuple()"
        )
        rows = {"id": pyarrow.array(range(len(series)), pyarrow.uint32()), "metric": [metric for metric, _ in series]}
        # `names` and `batch` are found by their names in the SQL.
        names = pyarrow.table(rows | {key: [tags.get(key, "") for _, tags in series] for key in TAGS})  # noqa: F841
        tags = "".join(f", {key} LowCardinality(String)" for key in TAGS)
        self.session.query(f"CREATE TABLE bench.series (id UInt32, metric LowCardinality(String){tags}) ENGINE = Memory")
        self.session.query(f"INSERT INTO bench.series SELECT id, metric, {', '.join(TAGS)} FROM Python(names)")
        began, cpu = time.monotonic(), time.process_time()
        for at in range(0, len(ids), rows_at_once):
            end = at + rows_at_once
            batch = pyarrow.table({"id": ids[at:end], "ms": times[at:end], "value": values[at:end]})  # noqa: F841
            self.session.query("INSERT INTO bench.arrived SELECT id, ms, value FROM Python(batch)")
        return {"samples": len(ids), "cpu_s": time.process_time() - cpu, "seconds": time.monotonic() - began}

    def merge(self):
        """The same rows with their names, sorted and in one part, in a table of their own; and the bytes of both."""
        self.session.query("SYSTEM STOP MERGES bench.arrived")
        began, cpu = time.monotonic(), time.process_time()
        tags = "".join(f", {key} LowCardinality(String)" for key in TAGS)
        key = f"metric, {', '.join(TAGS)}"
        self.session.query(
            f"CREATE TABLE bench.samples (metric LowCardinality(String){tags}, ts DateTime64(3, 'UTC') "
            "CODEC(DoubleDelta, ZSTD), value Float64 CODEC(ZSTD)) ENGINE = MergeTree "
            f"ORDER BY ({key}, ts)"
        )
        self.session.query(
            f"INSERT INTO bench.samples SELECT {key}, fromUnixTimestamp64Milli(ms, 'UTC'), value "
            "FROM bench.arrived AS a JOIN bench.series AS s ON a.id = s.id"
        )
        self.session.query("OPTIMIZE TABLE bench.samples FINAL")
        said = {"cpu_s": time.process_time() - cpu, "seconds": time.monotonic() - began}
        sizes = "SELECT table, sum(bytes_on_disk) FROM system.parts WHERE active AND database = 'bench' GROUP BY table"
        return {**said, "bytes": dict(self._rows(sizes))}

    def _rows(self, sql):
        table = self.session.query(sql, "ArrowTable")
        return list(zip(*(column.to_pylist() for column in table.columns)))

    def _sql(self, question):
        moment = "fromUnixTimestamp64Milli({}, 'UTC')".format
        within = f"ts >= {moment(question.start_ms)} AND ts < {moment(question.end_ms)}"
        one = f"FROM bench.samples WHERE metric = '{question.metric}'"
        at = "toUnixTimestamp64Milli(ts)"
        bucket = "toUnixTimestamp(toStartOfInterval(ts, INTERVAL {} MINUTE)) * 1000 AS t".format
        five = ", ".join(f"'{metric}'" for metric in question.metrics)
        return {
            "q1": f"SELECT {at}, value {one} AND host = '{question.host}' AND {within} ORDER BY ts",
            "q2": f"SELECT {bucket(1)}, avg(value) {one} AND {within} GROUP BY t ORDER BY t",
            "q3": f"SELECT host, {bucket(5)}, max(value) {one} AND {within} GROUP BY ALL",
            "q4": f"SELECT metric, {bucket(1)}, avg(value) FROM bench.samples WHERE metric IN ({five}) AND {within} "
            "GROUP BY ALL",
            "q5": f"SELECT metric, {', '.join(TAGS)}, argMax(value, ts) FROM bench.samples GROUP BY ALL",
            "q6": f"SELECT quantileExactInclusive(0.99)(value) {one}",
            "q7": f"SELECT host, {at}, value {one} AND value > 90",
            "q8": f"SELECT host, {bucket(1)}, avg(value) {one} AND {within} GROUP BY ALL",
        }[question.name]

    def ask(self, question, warm=0, times=1, show=False):
        question = Question(**question)
        sql = self._sql(question)
        said, rows = timed(lambda: self._rows(sql), warm, times)
        if show:
            said["answer"] = list(answer(question, rows).items())
        return said


class Dragon:
    """SQLite with Dragon's one table: no index, times as text, tags as JSON in every row. 10,000 rows a transaction, where
    Dragon itself commits each row."""

    SCHEMA = "CREATE TABLE datapoints (metric varchar(50), timestamp varchar(30), value real, tags json)"
    #: What Dragon asks for one metric; the tag key is that of the filter.
    SELECT = """SELECT dps.metric, dps.timestamp, dps.value, json_each.key AS tag_key, json_each.value AS tag_value
        FROM datapoints AS dps, json_each(dps.tags) WHERE dps.metric = ? AND tag_key = ?
        AND CAST(timestamp AS INTEGER) >= ? AND CAST(timestamp AS INTEGER) <= ? ORDER BY tag_value"""

    def open(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute(self.SCHEMA)
        return {"version": sqlite3.sqlite_version}

    def load(self, columns_directory, samples_max, rows_at_once=10_000):
        ids, times, values, series = columns(columns_directory)
        names = [(metric, json.dumps(tags)) for metric, tags in series]
        samples = min(samples_max, len(ids))
        rows = [
            (names[at][0], str(ms // 1_000), value, names[at][1])
            for at, ms, value in zip(ids[:samples].tolist(), times[:samples].tolist(), values[:samples].tolist())
        ]
        began, cpu = time.monotonic(), time.process_time()
        for at in range(0, samples, rows_at_once):
            self.connection.execute("BEGIN")
            self.connection.executemany("INSERT INTO datapoints VALUES (?, ?, ?, ?)", rows[at : at + rows_at_once])
            self.connection.execute("COMMIT")
        return {"samples": samples, "cpu_s": time.process_time() - cpu, "seconds": time.monotonic() - began}

    def ask(self, question, warm=0, times=1):
        question = Question(**question)
        values = (question.metric, "host", question.start_ms // 1_000, question.last_s)
        return timed(lambda: self.connection.execute(self.SELECT, values).fetchall(), warm, times)[0]


def main(name):
    worker = {"duckdb": Duck, "clickhouse": ClickHouse, "sqlite": Dragon}[name]()
    for line in sys.stdin:
        order = json.loads(line)
        try:
            said = getattr(worker, order.pop("do"))(**order)
        except Exception as error:  # the other side says what went wrong, and where
            said = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
