"""Several saved databases are one for DuckDB too: the view of `telem info --duckdb` gives the rows of `telem sql`."""

import json

import duckdb

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
