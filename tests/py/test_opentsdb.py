"""OpenTSDB's clients as their users install them, writing to a running telem and reading from it: two that send lines,
two that speak HTTP, and curl. netcat and collectd stand in test_telnet.py."""

import datetime
import gzip
import json
import shutil
import subprocess
import time

import opentsdb
import potsdb
import pyopentsdb.errors
import pyopentsdb.tsdb
import pytest

EPOCH = 1_700_000_000
PATIENCE_S = 120


def place(served):
    host, port = served.address.rsplit(":", 1)
    return host, int(port)


def stored(served, metric, count):
    """The samples of a metric as (seconds, tags, value), once `count` of them are there: clients send beside us."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        rows = served.sql(f"SELECT ts, tags, value FROM samples WHERE metric = '{metric}' ORDER BY ts, tags['host']")
        if len(rows) >= count or time.monotonic() > deadline:
            assert len(rows) == count, rows[:10]
            return [(row["ts"], row["tags"], row["value"]) for row in rows]


def test_potsdb_writes_lines(served):
    client = potsdb.Client(*place(served), host_tag="nid001", check_host=True)
    for n in range(1_000):
        client.log("potsdb.value", n / 4, job=17, timestamp=EPOCH + n)
    rows = stored(served, "potsdb.value", 1_000)
    # Only now: of a client that is gone before the server has looked, nobody knows whose it was.
    client.wait()
    assert rows[0] == ("2023-11-14T22:13:20Z", {"host": "nid001", "job": "17"}, 0)
    assert sum(value for _, _, value in rows) == sum(range(1_000)) / 4


@pytest.mark.parametrize("protocol", ["HTTP", "TELNET"])
@pytest.mark.parametrize("compression", ["gzip", None])
def test_opentsdb_py_writes_counters_and_gauges(served, protocol, compression):
    host, port = place(served)
    client = opentsdb.TSDBClient(
        host, port, protocol=protocol, http_compression=compression, static_tags={"job": "17"},
        send_metrics_limit=0,
    )
    assert client.is_alive()
    for n in range(500):
        client.send("steps", n, rank="0", timestamp=EPOCH + n)
    client.loss = opentsdb.Gauge("loss", tag_names=["rank"])
    client.loss.tags("1").set(0.25)
    rows = stored(served, "steps", 500)
    assert {tags["rank"] + tags["job"] for _, tags, _ in rows} == {"017"} and "host" in rows[0][1]
    assert [value for _, _, value in rows] == list(range(500))
    assert stored(served, "loss", 1)[0][2] == 0.25
    # Only now, as above.
    client.close()
    client.wait()
    assert client.statuses["success"] == 501 and client.statuses["failed"] == 0, client.statuses


def test_opentsdb_py_is_told_how_many_points_were_bad(served):
    host, port = place(served)
    client = opentsdb.TSDBClient(host, port)
    client.send("good", 1, host="a", timestamp=EPOCH)
    client.send("bad", "no number", host="a", timestamp=EPOCH)
    client.close()
    client.wait()
    assert (client.statuses["success"], client.statuses["failed"]) == (1, 1)
    assert stored(served, "good", 1)


def test_pyopentsdb_writes_asks_and_is_told_what_is_wrong(served):
    client = pyopentsdb.tsdb.TsdbConnector(f"http://{served.address}/")
    points = [
        {"metric": "sys.cpu", "timestamp": EPOCH + n, "value": n + 1, "tags": {"host": host}}
        for n in range(120)
        for host in ("a", "b")
    ]
    # Its options for the details of a put reach the library below, which does not know them.
    assert client.put(data=points) is None
    with pytest.raises(pyopentsdb.errors.ArgumentError, match="One or more data points had errors"):
        client.put(data=[{**points[0], "value": "x"}])

    start = datetime.datetime.fromtimestamp(EPOCH, datetime.timezone.utc)
    asked = {
        "start": start,
        "end": start + datetime.timedelta(seconds=119),
        "metrics": [
            {
                "metric": "sys.cpu",
                "aggregator": "sum",
                "downsample": "1m-avg",
                "filters": [{"type": "literal_or", "tagk": "host", "filter": "a|b", "groupBy": True}],
            }
        ],
    }
    answer = client.query(**asked)
    assert [group["tags"] for group in answer] == [{"host": "a"}, {"host": "b"}]
    assert answer[0]["dps"] == {str(EPOCH + 40): 70.5, str(EPOCH + 100): 110.5}
    many = client.multiquery([{**asked, "metrics": [{"metric": "sys.cpu", "aggregator": "max"}]} for _ in range(60)])
    assert len(many) == 60 and all(group["dps"][str(EPOCH + 119)] == 120 for group in many)
    with pytest.raises(pyopentsdb.errors.ArgumentError, match="No such name for 'metrics': 'no.such'"):
        client.query(start=start, metrics=[{"metric": "no.such", "aggregator": "sum"}])

    assert client.metrics(regexp="cpu$") == ["sys.cpu"]
    assert client.suggest(type="tagv", q="b") == ["b"]
    assert {"sum", "p99", "mimmin"} <= set(client.aggregators())
    assert "wildcard" in client.filters() and client.config() is not None
    assert client.version()["version"] == "2.4.1"
    client.dropcaches()


@pytest.fixture
def curl(served):
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")

    def run(path, *options, sent=None):
        command = ["curl", "--silent", "--show-error", "--fail", *options, f"http://{served.address}{path}"]
        return subprocess.run(command, input=sent, capture_output=True, check=True, timeout=PATIENCE_S).stdout

    return run


def points(count):
    return [{"metric": "many", "timestamp": EPOCH + n, "value": n * 0.5, "tags": {"host": "a"}} for n in range(count)]


ALL = f"/api/query?start={EPOCH}&end={EPOCH + 100_000}&m=sum:many"


def test_curl_sends_and_reads_gzip(served, curl):
    sent = gzip.compress(json.dumps(points(20_000)).encode())
    packed = ("--header", "Content-Encoding: gzip", "--header", "Content-Type: application/json")
    assert curl("/api/put", *packed, "--data-binary", "@-", sent=sent) == b""
    plain = curl(ALL)
    dps = json.loads(plain)[0]["dps"]
    assert len(dps) == 20_000 and dps[str(EPOCH + 3)] == 1.5
    assert curl(ALL, "--compressed") == plain
    raw = curl(ALL, "--header", "Accept-Encoding: gzip")
    assert len(raw) < len(plain) / 3 and gzip.decompress(raw) == plain


def test_curl_posts_a_chunked_question_and_an_old_one_reads_to_the_end(served, curl):
    served.put(points(20_000))
    asked = json.dumps({"start": EPOCH, "end": EPOCH + 100_000, "queries": [{"metric": "many", "aggregator": "sum"}]})
    plain = curl(ALL)
    chunked = ("--header", "Transfer-Encoding: chunked", "--data-binary", "@-")
    assert curl("/api/query", *chunked, sent=asked.encode()) == plain
    # HTTP/1.0 has no chunks: the answer ends with the connection.
    assert curl(ALL, "--http1.0") == plain
