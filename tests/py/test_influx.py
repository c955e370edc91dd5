"""InfluxDB's own Python clients, of 1.x, of 2.x and of 3, writing to a running telem."""

import influxdb
import influxdb_client
import pytest
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException
from influxdb_client_3 import InfluxDBClient3, Point, WriteOptions, WriteType, write_client_options
from influxdb_client_3.exceptions import InfluxDBPartialWriteError

EPOCH = 1_700_000_000


@pytest.fixture
def server(serve, tmp_path):
    return serve(tmp_path / "db")


def rows(server, metric):
    return server.sql(f"SELECT host, value, value_int FROM samples WHERE metric = '{metric}' ORDER BY ts")


def of_1(server):
    host, port = server.address.rsplit(":", 1)
    return influxdb.InfluxDBClient(host, int(port), database="job", gzip=True)


def of_2(server):
    return influxdb_client.InfluxDBClient(f"http://{server.address}", token="any", org="any", enable_gzip=True)


def point(n, **fields):
    return {"measurement": "train", "tags": {"host": "nid 1", "run": "a=b,c"}, "time": EPOCH + n, "fields": fields}


def test_the_client_of_1_x_finds_a_server_makes_its_database_and_writes(server):
    client = of_1(server)
    assert client.ping().startswith("1.8.0-telem.")
    client.create_database("job")
    assert client.get_list_database() == [{"name": "telem"}]
    points = [point(n, loss=n / 8, step=n, done=n == 2) for n in range(3)]
    assert client.write_points(points, time_precision="s", batch_size=2)
    assert [row["value"] for row in rows(server, "train_loss")] == [0.0, 0.125, 0.25]
    assert [row["value_int"] for row in rows(server, "train_step")] == [0, 1, 2]
    assert [row["value_int"] for row in rows(server, "train_done")] == [0, 0, 1]
    assert server.sql("SELECT DISTINCT host, run FROM train_loss") == [{"host": "nid 1", "run": "a=b,c"}]


def test_the_client_of_1_x_shows_what_was_not_stored(server):
    client = of_1(server)
    with pytest.raises(influxdb.exceptions.InfluxDBClientError) as told:
        client.write_points([point(0, loss=0.5), point(1, loss=0.25, state="up")], time_precision="s")
    assert told.value.code == 400
    assert "partial write: line 2: field 'state' is a string" in str(told.value)
    assert len(rows(server, "train_loss")) == 2


def test_the_client_of_2_x_is_greeted_and_writes(server):
    with of_2(server) as client:
        assert client.ping()
        assert client.health().status == "pass"
        with client.write_api(write_options=SYNCHRONOUS) as api:
            ready = influxdb_client.Point("train").tag("host", "nid 1").field("value", 0.5).field("big", 2**62)
            api.write("any", record=ready.time(EPOCH, "s"), write_precision="s")
            api.write("any", record=[point(n, loss=float(n)) for n in range(3)], write_precision="s")
    assert rows(server, "train") == [{"host": "nid 1", "value": 0.5, "value_int": None}]
    assert rows(server, "train_big")[0]["value_int"] == 2**62
    assert [row["value"] for row in rows(server, "train_loss")] == [0.0, 1.0, 2.0]


def test_the_batching_writer_of_2_x_writes_many(server):
    with of_2(server) as client:
        options = influxdb_client.WriteOptions(batch_size=500, flush_interval=100)
        with client.write_api(write_options=options) as api:
            for n in range(2_000):
                api.write("any", record=f"many,host=a v={n}i {EPOCH + n}", write_precision="s")
    assert server.sql("SELECT count(*) AS n, sum(value) AS sum FROM many_v") == [{"n": 2_000, "sum": 1999 * 1000.0}]


def test_the_client_of_2_x_shows_what_was_not_stored(server):
    with of_2(server) as client, client.write_api(write_options=SYNCHRONOUS) as api:
        with pytest.raises(ApiException) as told:
            api.write("any", record=["m v=1 1", "bad", "m v=2 2"], write_precision="s")
    assert told.value.status == 400
    assert "line 2: unable to parse 'bad': missing fields" in told.value.body
    assert [row["value"] for row in rows(server, "m_v")] == [1.0, 2.0]


def of_3(server, **wishes):
    wishes = WriteOptions(write_type=WriteType.synchronous, use_v2_api=False, **wishes)
    options = write_client_options(write_options=wishes)
    return InfluxDBClient3(
        host=f"http://{server.address}", database="job", token="any", write_client_options=options
    )


@pytest.mark.parametrize("wishes", [{}, {"no_sync": True}, {"accept_partial": False}])
def test_the_client_of_3_writes(server, wishes):
    with of_3(server, **wishes) as client:
        client.write([f"train,host=a loss={n / 8} {EPOCH + n}" for n in range(3)], write_precision="s")
        client.write(Point("train").tag("host", "a").field("step", 7).time((EPOCH + 3) * 10**9))
    assert [row["value"] for row in rows(server, "train_loss")] == [0.0, 0.125, 0.25]
    assert [row["value_int"] for row in rows(server, "train_step")] == [7]


@pytest.mark.parametrize("partial", [True, False])
def test_the_client_of_3_shows_what_was_not_stored(server, partial):
    with of_3(server, accept_partial=partial) as client:
        with pytest.raises(InfluxDBPartialWriteError) as told:
            client.write("m v=1 1\nbad\nm v=2 2", write_precision="s")
    (line,) = told.value.line_errors
    assert (line.line_number, line.original_line, line.error_message) == (2, "bad", "missing fields")
    assert [row["value"] for row in rows(server, "m_v")] == ([1.0, 2.0] if partial else [])
