"""One million samples of 1,000 series, put and then summed three ways: the numbers are the same."""

import pathlib
import random

import duckdb
import polars
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


def awkward_samples():
    """Every way in which values and times are stored: decimals, integers, noise, series of two kinds; ticks that come late."""
    seeded = random.Random(7)
    ticks = [START * 1_000 + at * 1_000 + seeded.randrange(6) for at in range(400)]
    values = {
        "decimals": lambda: round(seeded.uniform(0, 100), 2),
        "integers": lambda: seeded.randrange(-(2**62), 2**62),
        "whole": lambda: float(seeded.randrange(1_000)),
        "noise": lambda: seeded.gauss(0, 1e-7),
        "nearly decimals": lambda: round(seeded.uniform(0, 100), 3) if seeded.random() < 0.9 else seeded.random(),
        "constant": lambda: 0.1,
        "both": lambda: seeded.choice([7, 0.25, 0.1 + 0.2]),
    }
    return {
        (f"{kind}-{at}", time): make() for at in range(6) for kind, make in values.items() for time in ticks
    }


def test_other_readers_get_exactly_the_values_and_times_that_were_put(serve, telem, tmp_path):
    data = tmp_path / "db"
    server = serve(data)
    expected = awkward_samples()
    batch = [
        {"metric": "m", "timestamp": time, "value": value, "tags": {"series": series.replace(" ", "_")}}
        for (series, time), value in expected.items()
    ]
    for at in range(0, len(batch), BATCH):
        server.put(batch[at : at + BATCH])
    server.stop()
    # Integers beyond 2^53 are the nearest doubles there, as the documented expression says.
    expected = {(series.replace(" ", "_"), time): float(value) for (series, time), value in expected.items()}

    database = duckdb.connect()
    database.execute(telem("info", "--duckdb", data))
    rows = database.execute("SELECT map_extract(tags, 'series')[1], epoch_ms(ts), value FROM samples").fetchall()
    assert len(rows) == len(expected)
    assert {(series, time): value for series, time, value in rows} == expected

    segments, keys = (sorted(pathlib.Path(data, folder).glob("*.parquet")) for folder in ("segments", "series"))
    names = {}
    for key in keys:
        table = parquet.read_table(key).to_pydict()
        names |= {series: dict(tags)["series"] for series, tags in zip(table["id"], table["tags"])}

    def value_of(row):
        """The expression of docs/format, by hand."""
        if row["float"] is not None:
            return row["float"]
        return float(row["int"]) if row["scale"] is None else float(row["int"]) / 10.0 ** row["scale"]

    for read in (lambda file: parquet.read_table(file), lambda file: polars.read_parquet(file).to_arrow()):
        found = {}
        for segment in segments:
            table = read(segment)
            times = table["ts"].cast("int64").to_pylist()
            rows = table.drop_columns(["ts"]).to_pylist()
            found |= {(names[row["series"]], time // 1_000): value_of(row) for row, time in zip(rows, times)}
        assert found == expected
