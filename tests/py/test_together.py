"""Saved databases, one or several: who reads them replayed, by SQL or past telem has the rows that were seen live."""

import csv
import io
import json
import pathlib
import struct
import sys

import duckdb
import polars
import pyarrow

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"))

from telem import Telemetry  # noqa: E402

START = 1767225600

ROWS = """
SELECT metric, host, node, epoch_us(ts), value, value_int FROM samples ORDER BY metric, ts, host
"""
OURS = """
SELECT metric, host, node, CAST(ts AS BIGINT) AS us, value, value_int FROM samples ORDER BY metric, ts, host
"""


def samples(node, first, value):
    of_both = [
        {"metric": "loss", "timestamp": START + first + n, "value": value(n), "tags": {"rank": "0"}} for n in range(10)
    ]
    return of_both + [{"metric": "load", "timestamp": START, "value": 0.5, "tags": {"host": node}}]


def test_the_view_of_several_databases_has_the_rows_of_sql(serve, telem, tmp_path):
    for node, first, value in [("n1", 0, lambda n: n), ("n2", 5, lambda n: n / 3), ("n3", 8, lambda n: -n)]:
        server = serve(tmp_path / "job" / node, "--node", node)
        server.put(samples(node, first, value))
        server.stop()
    for dirs in [["job"], ["job/n2", "job/n1"], ["job/n1", "job/n3", "job/n2"]]:
        dirs = [tmp_path / one for one in dirs]
        ours = [tuple(row.get(name) for name in ["metric", "host", "node", "us", "value", "value_int"])
                for row in json.loads(telem("sql", "--format", "json", *dirs, OURS))]
        database = duckdb.connect()
        database.execute(telem("info", "--duckdb", *dirs))
        assert database.execute(ROWS).fetchall() == ours
        assert {row[2] for row in ours if row[0] == "loss"} == {"n3" if dirs[0].name == "job" else dirs[-1].name}


NUMBERS = [0.1, 2 / 3, -0.0, 5e-324, 1.7976931348623157e308, 1e22, "NaN", "Infinity", "-Infinity"]
NUMBERS += [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 1e-7, 7]
EVERYTHING = "SELECT metric, host, node, tags, ts, value, value_int FROM samples ORDER BY metric, tags['rank'], ts"


def exact(rows):
    """Floats by their bits, so that NaN is NaN and -0.0 is not 0.0."""
    return [tuple(struct.pack(">d", one) if isinstance(one, float) else one for one in row) for row in rows]


def table(server, sql):
    """The answer as pyarrow reads it."""
    server.connection.request("POST", "/api/sql?format=arrow", sql)
    with pyarrow.ipc.open_stream(server.connection.getresponse().read()) as stream:
        return stream.read_all()


def numbers(ranks, shift):
    """The numbers under each rank, a microsecond apart."""
    return [
        {"metric": "exact", "timestamp": START * 1_000_000 + n, "value": NUMBERS[(n + shift) % len(NUMBERS)],
         "tags": {"rank": str(rank), "host": f"h{rank}"}}
        for rank in ranks
        for n in range(len(NUMBERS))
    ]


def test_pyarrow_and_polars_read_from_a_replay_the_bits_that_they_read_live(serve, replay, tmp_path):
    live = serve(tmp_path / "job" / "n1", "--node", "n1")
    live.put(numbers([0, 1], 0), "?precision=us&non_finite=keep")
    seen = table(live, EVERYTHING)
    csv_seen = live.post("/api/sql?format=csv", EVERYTHING)
    assert seen.num_rows == 2 * len(NUMBERS)
    values = [float(one) for one in NUMBERS]
    assert exact([seen["value"].to_pylist()[: len(NUMBERS)]]) == exact([values])
    assert exact([[float(row["value"]) for row in csv.DictReader(io.StringIO(csv_seen))][: len(NUMBERS)]]) == exact([values])
    for end in [live.kill, lambda: serve(tmp_path / "job" / "n1", "--node", "n1").stop()]:
        end()
        replayed = replay(tmp_path / "job")
        again = table(replayed, EVERYTHING)
        assert again.schema == seen.schema
        rows = [exact(map(tuple, map(dict.values, one.to_pylist()))) for one in [again, seen]]
        assert str(rows[0]) == str(rows[1])
        frames = [polars.from_arrow(one.drop_columns("tags")) for one in [again, seen]]
        assert exact(frames[0].rows()) == exact(frames[1].rows())
        assert replayed.post("/api/sql?format=csv", EVERYTHING) == csv_seen


def test_two_jobs_that_share_series_are_one_to_every_reader(serve, replay, telem, tmp_path):
    for node, ranks, shift in [("n1", [0, 1], 0), ("n1-2", [1, 2], 3)]:
        server = serve(tmp_path / "job" / node, "--node", node)
        server.put(numbers(ranks, shift), "?precision=us&non_finite=keep")
        server.stop()
    # The jobs wrote other numbers at the same times: the later one's count.
    first, second = ({rank: numbers([rank], shift) for rank in ranks} for ranks, shift in [([0, 1], 0), ([1, 2], 3)])
    expected = [float(point["value"]) for rank in [0, 1, 2] for point in {**first, **second}[rank]]
    rows = "SELECT value FROM exact ORDER BY rank, ts"
    replayed = replay(tmp_path / "job")
    assert exact([table(replayed, rows)["value"].to_pylist()]) == exact([expected])
    local = telem("sql", "--format", "csv", tmp_path / "job", rows)
    assert exact([map(float, local.split()[1:])]) == exact([expected])
    database = duckdb.connect()
    database.execute(telem("info", "--duckdb", tmp_path / "job"))
    found = database.execute("SELECT value FROM samples WHERE metric = 'exact' ORDER BY tags['rank'], ts").fetchall()
    # Where DuckDB itself chooses among rows, it makes 0.0 of -0.0.
    assert exact([[one[0] + 0.0 for one in found]]) == exact([[one + 0.0 for one in expected]])
    exported = tmp_path / "all.parquet"
    telem("export", tmp_path / "job", "-o", exported)
    found = polars.read_parquet(exported).sort("rank", "ts")["value"].to_list()
    assert exact([found]) == exact([expected])
    info = json.loads(telem("info", "--json", tmp_path / "job"))
    assert (info["series"], info["metrics"], len(info["databases"])) == (3, 1, 2)
    assert info["samples"] == 4 * len(NUMBERS), "a sample that is written twice is stored twice"


def test_the_python_client_asks_a_replay_and_counts_what_it_does_not_take(serve, replay, tmp_path, monkeypatch):
    for name in ["TELEM_CONNECTION", "TELEM_SOCKET", "TELEM_URL", "TELEM_LEVEL"]:
        monkeypatch.delenv(name, raising=False)
    live = serve(tmp_path / "db")
    telemetry = Telemetry(address=live.connection_file)
    telemetry.add_data("loss", 1 / 3, tagk="rank", tagv="0")
    question = "SELECT value FROM loss"
    assert telemetry.sql(question, strict=True) == [{"value": 1 / 3}]
    telemetry.finalize()
    live.stop()
    telemetry = Telemetry(address=replay(tmp_path / "db").connection_file)
    telemetry.add_data("loss", 2.0)
    assert telemetry.sql(question, strict=True) == [{"value": 1 / 3}]
    assert telemetry.flush(60) and telemetry.dropped == 1
    telemetry.finalize()
