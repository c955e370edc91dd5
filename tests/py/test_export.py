"""What `telem export` writes is, for the tools that people use, what was put: to the last digit, in every format."""

import itertools
import json
import math
import struct

import duckdb
import polars
import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

pandas = pytest.importorskip("pandas", reason="pandas of this version asks for a newer Python")

START_US = 1_356_998_400_000_000  # 2013-01-01T00:00:00Z
FIXED = ["metric", "host", "node", "ts", "value", "value_int"]
PREFIXED = {"tag_metric": "metric", "tag_node": "node", "tag_ts": "ts", "tag_value": "value", "tag_tag_ts": "tag_ts"}

FLOATS = [0.1, 2 / 3, -0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, -1e-7, 1e22, 123456789.000000123]
NOT_FINITE = [math.nan, math.inf, -math.inf]
INTS = [0, -1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 9_007_199_254_740_993]


def series():
    """(metric, tags, values); values are a µs and then a second apart."""
    yield "train.loss", {"host": "n1", "rank": "0"}, FLOATS + NOT_FINITE
    yield "train.loss", {"host": "n1", "rank": "1"}, NOT_FINITE + FLOATS
    yield "train.loss", {"rank": "10"}, [1.5]
    yield "counter", {"host": "n2"}, INTS
    yield "counter", {"host": "n2", "core": "0"}, [1, 0.5, 2**62, 1e300, 2]
    yield "größe/用量", {"θ": "日本", "host": "ñ", "metric": "m", "value": "v", "ts": "t", "tag_ts": "u"}, [1, 2.5]
    yield "Counter", {"node": "N"}, [3]


def samples():
    for metric, tags, values in series():
        for at, value in enumerate(values):
            yield metric, tags, START_US + at * 1_000_001, value


def bits(value):
    """NaN equals NaN and nothing else; 0.0 is not -0.0."""
    return "nan" if math.isnan(value) else struct.pack("<d", value)


def key(metric, tags, ts, value, value_int):
    return metric, tuple(sorted(tags.items())), ts, bits(value), value_int


EXPECTED = sorted(
    (key(metric, tags, ts, float(value), value if isinstance(value, int) else None) for metric, tags, ts, value in samples()),
    key=repr,
)


def point(metric, tags, ts, value):
    if not math.isfinite(value):
        value = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return {"metric": metric, "tags": tags, "timestamp": ts, "value": value}


def put(server, chosen=None):
    server.put([point(*sample) for sample in chosen or samples()], "?precision=us&non_finite=keep")


def rows(dicts):
    """Rows of a reader, `ts` in microseconds, as they are in EXPECTED."""
    found = []
    for row in dicts:
        tags = {PREFIXED.get(name, name): text for name, text in row.items() if name not in FIXED and text is not None}
        if row["host"] is not None:
            tags["host"] = row["host"]
        assert row["node"]
        found.append(key(row["metric"], tags, row["ts"], row["value"], row["value_int"]))
    return sorted(found, key=repr)


def of_arrow(table):
    assert table.schema.field("ts").type == pyarrow.timestamp("us", "UTC")
    assert table.schema.field("value").type == pyarrow.float64()
    assert table.schema.field("value_int").type == pyarrow.int64()
    table = table.set_column(table.column_names.index("ts"), "ts", table["ts"].cast(pyarrow.int64()))
    return rows(table.to_pylist())


def of_polars(frame):
    assert frame.schema["ts"] == polars.Datetime("us", "UTC")
    return rows(frame.with_columns(polars.col("ts").dt.epoch("us")).to_dicts())


def of_pandas(frame):
    """Needs types that tell NaN from NULL and keep 64-bit integers beside NULLs: those of Arrow."""
    return of_arrow(pyarrow.Table.from_pandas(frame, preserve_index=False))


def of_duckdb(relation):
    """DuckDB does not tell columns apart by case; no two tags here differ in case alone."""
    result = duckdb.sql(f"SELECT * REPLACE (epoch_us(ts) AS ts) FROM {relation}")
    return rows(dict(zip(result.columns, row)) for row in result.fetchall())


def csv_types(path):
    names = path.read_text().splitlines()[0].split(",")
    types = {"value": pyarrow.float64(), "value_int": pyarrow.int64(), "ts": pyarrow.timestamp("us", "UTC")}
    return {name: types.get(name, pyarrow.string()) for name in names}


def csv_arrow(path):
    options = pyarrow.csv.ConvertOptions(column_types=csv_types(path), null_values=[""], strings_can_be_null=True)
    return of_arrow(pyarrow.csv.read_csv(path, convert_options=options))


def csv_polars(path):
    types = {name: polars.String for name in csv_types(path)} | {"value": polars.Float64, "value_int": polars.Int64}
    frame = polars.read_csv(path, schema_overrides=types)
    return of_polars(frame.with_columns(polars.col("ts").str.to_datetime(time_unit="us", time_zone="UTC")))


def csv_pandas(path):
    types = {name: "str" for name in csv_types(path)} | {"value": "float64", "value_int": "Int64"}
    missing = {name: ["NaN"] if name == "value" else [""] for name in types}
    del types["ts"]
    frame = pandas.read_csv(path, parse_dates=["ts"], dtype=types, keep_default_na=False, na_values=missing)
    assert pandas.api.types.is_datetime64_any_dtype(frame["ts"].dtype), "the first time tells the form of all"
    micros = frame["ts"].dt.as_unit("us")
    plain = frame.assign(ts=micros.astype("int64")).astype(object)
    # A float column holds no NULL here, so what is missing in it is NaN.
    nulls = plain.drop(columns="value").isna()
    return rows(
        {name: None if name != "value" and nulls.at[at, name] else row[name] for name in plain.columns} for at, row in plain.iterrows()
    )


def csv_duckdb(path):
    types = {name: "VARCHAR" for name in csv_types(path)} | {"value": "DOUBLE", "value_int": "BIGINT", "ts": "TIMESTAMPTZ"}
    return of_duckdb(f"read_csv('{path}', types = {types})")


READERS = {
    "parquet": [
        lambda path: of_arrow(pyarrow.parquet.read_table(path)),
        lambda path: of_polars(polars.read_parquet(path)),
        lambda path: of_pandas(pandas.read_parquet(path, dtype_backend="pyarrow")),
        lambda path: of_duckdb(f"read_parquet('{path}')"),
    ],
    "arrow": [
        lambda path: of_arrow(pyarrow.feather.read_table(path)),
        lambda path: of_polars(polars.read_ipc(path)),
        lambda path: of_pandas(pandas.read_feather(path, dtype_backend="pyarrow")),
    ],
    "csv": [csv_arrow, csv_polars, csv_pandas, csv_duckdb],
}


def check(telem, source, tmp_path):
    """Every format, read by every reader, from `source`."""
    for form, readers in READERS.items():
        path = tmp_path / f"all.{form}"
        telem("export", *source, "-o", path)
        for reader in readers:
            assert reader(path) == EXPECTED, f"{form}, {reader}"
    table = pyarrow.parquet.read_table(tmp_path / "all.parquet").drop_columns(["node", "value", "value_int"])
    places = [(tuple(row.items()), ts) for row, ts in zip(table.drop_columns("ts").to_pylist(), table["ts"].to_pylist())]
    assert len(list(itertools.groupby(places, key=lambda place: place[0]))) == len(list(series()))
    assert all(one[1] < next[1] for one, next in itertools.pairwise(places) if one[0] == next[0]), "each series in one piece, by time"


def arrow_of_sql(server, sql):
    server.connection.request("POST", "/api/sql?format=arrow", sql.encode())
    return pyarrow.ipc.open_stream(server.connection.getresponse().read()).read_all()


def test_every_reader_finds_in_every_format_what_live_queries_answer(serve, telem, tmp_path):
    data = tmp_path / "db"
    server = serve(data)
    put(server)

    table = arrow_of_sql(server, "SELECT metric, tags, ts, value, value_int FROM samples")
    table = table.set_column(2, "ts", table["ts"].cast(pyarrow.int64()))
    answered = [key(*(dict(cell) if name == "tags" else cell for name, cell in row.items())) for row in table.to_pylist()]
    assert sorted(answered, key=repr) == EXPECTED, "SQL, live"

    groups = server.query(START_US // 1000, START_US // 1000 + 100_000, metric="counter", aggregator="none")
    ints = [value for group in groups if "core" not in group["tags"] for value in group["dps"].values()]
    assert sorted(ints) == sorted(INTS) and all(isinstance(value, int) for value in ints), "/api/query, live"

    check(telem, ["http://" + server.address], tmp_path)
    server.stop()
    check(telem, [data], tmp_path)


def test_several_databases_are_exported_as_one(serve, telem, tmp_path):
    """Every series is in both, one sample of each twice: that of the later directory counts."""
    first, second = tmp_path / "save" / "n1", tmp_path / "save" / "n2"
    halves = [[sample for at, sample in enumerate(samples()) if at % 2 == half] for half in (0, 1)]
    twice = [(metric, tags, ts, 77) for metric, tags, ts, _ in halves[1][:3]]
    for data, chosen in [(first, halves[0] + twice), (second, halves[1])]:
        server = serve(data)
        put(server, chosen)
        server.stop()
    for sources in [[first, second], [tmp_path / "save"], [second, first, second]]:
        check(telem, sources, tmp_path)
    telem("export", second, first, "-o", tmp_path / "other.parquet")
    assert sum(row[-1] == 77 for row in of_arrow(pyarrow.parquet.read_table(tmp_path / "other.parquet"))) == 3


def test_a_directory_has_a_file_a_metric_that_other_tools_read_together(serve, telem, tmp_path):
    data, out = tmp_path / "db", tmp_path / "out"
    server = serve(data)
    put(server)
    server.stop()

    for form in READERS:
        telem("export", data, "-o", f"{out}/", "--format", form)
        index = json.loads((out / "_index.json").read_text())
        assert sorted(path.name for path in out.iterdir()) == sorted(["_index.json", *(file["file"] for file in index["files"])])
        assert [file["metric"] for file in index["files"]] == ["Counter", "counter", "größe/用量", "train.loss"]
        for reader in READERS[form]:
            found = [row for file in index["files"] for row in reader(out / file["file"])]
            assert sorted(found, key=repr) == EXPECTED, f"{form}, {reader}"
        if form == "parquet":
            assert of_duckdb(f"read_parquet('{out}/*.parquet', union_by_name = true)") == EXPECTED
            together = polars.scan_parquet(f"{out}/*.parquet", missing_columns="insert", extra_columns="ignore").select(FIXED)
            assert together.collect().height == len(EXPECTED)


def test_metrics_and_times_are_chosen(serve, telem, tmp_path):
    data, out = tmp_path / "db", tmp_path / "some.parquet"
    server = serve(data)
    put(server)
    server.stop()

    second = START_US + 1_000_001
    for arguments, chosen in [
        (["--metric", "?ounter"], lambda metric, ts: metric in ("counter", "Counter")),
        (["--metric", "train.*", "--metric", "Counter"], lambda metric, ts: metric in ("train.loss", "Counter")),
        (["--start", f"{second}us"], lambda metric, ts: ts >= second),
        (["--end", f"{second}us"], lambda metric, ts: ts < second),
        (["--start", "2013-01-01T00:00:01.000001Z", "--end", "1356998402.000002", "--metric", "c*"], lambda metric, ts: metric == "counter" and ts == second),
    ]:
        telem("export", data, "-o", out, *arguments)
        wanted = {(metric, ts) for metric, _, ts, _ in samples() if chosen(metric, ts)}
        found = pyarrow.parquet.read_table(out)
        assert set(zip(found["metric"].to_pylist(), found["ts"].cast(pyarrow.int64()).to_pylist())) == wanted, arguments


def test_rows_are_in_order_and_parquet_tells_what_it_holds(serve, telem, tmp_path):
    data, out = tmp_path / "db", tmp_path / "all.parquet"
    server = serve(data)
    points = [
        {"metric": metric, "timestamp": START_US // 1_000_000 + at, "value": at, "tags": {"host": f"n{host:02}"}}
        for metric in ("b", "a")
        for at in range(1_000)
        for host in range(20)
    ]
    for at in range(0, len(points), 10_000):
        server.put(points[at : at + 10_000])
    for source in (f"http://{server.address}", data):
        telem("export", source, "-o", out)
        table = pyarrow.parquet.read_table(out)
        assert table.num_rows == len(points)
        rows = list(zip(*(table[name].to_pylist() for name in ("metric", "host", "ts"))))
        assert rows == sorted(rows), source

    columns = pyarrow.parquet.ParquetFile(out).metadata.row_group(0)
    by_name = {columns.column(at).path_in_schema: columns.column(at) for at in range(columns.num_columns)}
    assert all(column.compression == "ZSTD" for column in by_name.values())
    assert "RLE_DICTIONARY" in by_name["host"].encodings and "DELTA_BINARY_PACKED" in by_name["ts"].encodings
    assert (by_name["metric"].statistics.min, by_name["metric"].statistics.max) == ("a", "b")
    assert by_name["value_int"].statistics.max == 999
