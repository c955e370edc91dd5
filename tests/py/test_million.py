"""One million samples of 1,000 series, put and then summed three ways: the numbers are the same."""

import pathlib

import duckdb
import pyarrow.parquet as parquet
import pytest

SERIES = 1_000
SAMPLES_EACH = 1_000
START = 1_356_998_400  # 2013-01-01T00:00:00Z
STEP_S = 1
BATCH = 10_000


def value(series, at):
    """Every third series has floats (quarters: their sums are exact), the others have integers."""
    number = (series * 7_919 + at * 104_729) % 1_000_003
    return number / 4 if series % 3 == 0 else number


def sample(series, at):
    tags = {"host": f"n{series % 50:02}", "core": str(series // 50)}
    return {"metric": "load", "timestamp": START + at * STEP_S, "value": value(series, at), "tags": tags}


EXPECTED_BY_HOST = {
    f"n{host:02}": float(
        sum(value(series, at) for series in range(host, SERIES, 50) for at in range(SAMPLES_EACH))
    )
    for host in range(50)
}


def from_opentsdb(server):
    answer = server.query(
        START, START + SAMPLES_EACH * STEP_S, metric="load", aggregator="sum", downsample="0all-sum", tags={"host": "*"}
    )
    assert all(len(group["dps"]) == 1 for group in answer)
    return {group["tags"]["host"]: next(iter(group["dps"].values())) for group in answer}


def from_sql(server):
    rows = server.sql("SELECT host, sum(value) AS total, count(*) AS n FROM samples WHERE metric = 'load' GROUP BY host")
    assert sum(row["n"] for row in rows) == SERIES * SAMPLES_EACH
    return {row["host"]: row["total"] for row in rows}


def from_duckdb(data, telem):
    database = duckdb.connect()
    database.execute(telem("info", "--duckdb", data))
    rows = database.execute("SELECT tags['host'], sum(value), count(*) FROM samples WHERE metric = 'load' GROUP BY 1").fetchall()
    assert sum(row[2] for row in rows) == SERIES * SAMPLES_EACH
    first = lambda host: host[0] if isinstance(host, list) else host
    return {first(host): total for host, total, _ in rows}


def test_a_million_samples_have_one_sum_in_opentsdb_sql_and_duckdb(serve, telem, tmp_path):
    data = tmp_path / "db"
    server = serve(data)
    batch = []
    for at in range(SAMPLES_EACH):
        for series in range(SERIES):
            batch.append(sample(series, at))
            if len(batch) == BATCH:
                server.put(batch)
                batch = []
    assert not batch

    assert from_opentsdb(server) == pytest.approx(EXPECTED_BY_HOST, rel=1e-12)
    assert from_sql(server) == pytest.approx(EXPECTED_BY_HOST, rel=1e-12)

    server.stop()
    assert from_duckdb(data, telem) == pytest.approx(EXPECTED_BY_HOST, rel=1e-12)

    server = serve(data)
    assert from_opentsdb(server) == pytest.approx(EXPECTED_BY_HOST, rel=1e-12)
    assert from_sql(server) == pytest.approx(EXPECTED_BY_HOST, rel=1e-12)


def test_segments_and_series_are_parquet_for_other_readers(serve, tmp_path):
    data = tmp_path / "db"
    server = serve(data)
    server.put([{"metric": "m", "timestamp": START + at, "value": value(at % 6, at), "tags": {"host": f"h{at % 6}"}} for at in range(600)])
    server.stop()

    rows = 0
    for segment in pathlib.Path(data, "segments").glob("*.parquet"):
        table = parquet.read_table(segment)
        assert {"series", "ts"} <= set(table.column_names)
        rows += table.num_rows
    assert rows == 600
    series = [parquet.read_table(file) for file in pathlib.Path(data, "series").glob("*.parquet")]
    assert sum(table.num_rows for table in series) == 6
