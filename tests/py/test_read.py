"""`telem.read`: saved runs and running services as data frames, with the columns and values that `telem export` writes."""

import datetime
import importlib
import math
import pathlib
import sys

import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from conftest import TELEM

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
sys.path.insert(0, str(CLIENT))

import telem as client  # noqa: E402

START_S = 1_767_225_600


@pytest.fixture(autouse=True)
def binary(monkeypatch):
    monkeypatch.setenv("TELEM", TELEM)


def put(server):
    samples = [
        {"metric": metric, "timestamp": START_S + at, "value": value, "tags": tags}
        for metric, tags in [("train.loss", {"host": "n1", "rank": "0"}), ("train.lr", {"host": "n1"}), ("load", {"host": "n2", "node": "x"})]
        for at, value in enumerate([0.5, 2**53 + 1, -1])
    ]
    server.put(samples)


def rows(table):
    """Rows of an Arrow table in any order, NaN by its name."""
    shown = [tuple(sorted((key, "nan" if isinstance(value, float) and math.isnan(value) else value) for key, value in row.items())) for row in table.to_pylist()]
    return sorted(shown, key=repr)


def test_a_service_and_its_saved_directory_give_the_same_rows_as_an_export(serve, telem, tmp_path):
    server = serve(tmp_path / "db")
    put(server)
    url = f"http://{server.address}"
    live = client.read(url, as_="arrow")
    server.stop()
    saved = client.read(tmp_path / "db", as_="arrow")
    telem("export", tmp_path / "db", "-o", tmp_path / "all.parquet")
    exported = pyarrow.parquet.read_table(tmp_path / "all.parquet")
    assert live.column_names == saved.column_names == exported.column_names == ["metric", "host", "node", "tag_node", "rank", "ts", "value", "value_int"]
    assert saved.schema.equals(exported.schema, check_metadata=False)
    assert rows(live) == rows(saved) == rows(exported) and len(rows(saved)) == 9


def test_metrics_and_times_are_chosen(serve, tmp_path):
    server = serve(tmp_path / "db")
    put(server)
    url = f"http://{server.address}"
    second = datetime.datetime.fromtimestamp(START_S + 1, datetime.timezone.utc)
    choices = [
        ({"metrics": "train.*"}, 6),
        ({"metrics": ["load", "train.l?"]}, 6),
        ({"metrics": "load", "start": START_S + 1}, 2),
        ({"metrics": "load", "start": second, "end": second + datetime.timedelta(seconds=1)}, 1),
        ({"end": str(START_S + 1)}, 3),
        ({"start": "2026-01-01T00:00:02Z"}, 3),
    ]
    found = [client.read(url, as_="arrow", **more).num_rows for more, _ in choices]
    server.stop()
    saved = [client.read(tmp_path / "db", as_="arrow", **more).num_rows for more, _ in choices]
    assert found == saved == [count for _, count in choices]
    assert client.read(str(tmp_path / "db"), start="1s-ago", as_="arrow").num_rows == 6, "from the last sample"
    assert client.read([tmp_path / "db"], as_="arrow").num_rows == 9


def test_frames_of_pandas_and_polars_keep_integers(serve, tmp_path):
    server = serve(tmp_path / "db")
    put(server)
    server.stop()
    frame = client.read(tmp_path / "db", "load")
    assert isinstance(frame, pandas.DataFrame) and list(frame["value"]) == [0.5, 2.0**53, -1.0]
    assert frame["value_int"][1] == 2**53 + 1 and frame["value_int"].isna()[0]
    assert frame["ts"][0] == pandas.Timestamp(START_S, unit="s", tz="UTC")
    frame = client.read(tmp_path / "db", "load", as_="polars")
    assert isinstance(frame, polars.DataFrame) and frame["value_int"].to_list() == [None, 2**53 + 1, -1]


def test_what_cannot_be_read_is_said(serve, tmp_path, monkeypatch):
    server = serve(tmp_path / "db")
    url = f"http://{server.address}"
    with pytest.raises(client.TelemetryError, match="there are no samples yet"):
        client.read(url)
    put(server)
    with pytest.raises(client.TelemetryError, match="no metric matches.*there are load, train.loss, train.lr"):
        client.read(url, metrics="loss")
    server.stop()
    with pytest.raises(client.TelemetryError, match="does not answer"):
        client.read(url)
    with pytest.raises(client.TelemetryError, match="no metric matches 'train.los'; close to it: train.loss"):
        client.read(tmp_path / "db", metrics="train.los")
    with pytest.raises(client.TelemetryError, match="there is no directory"):
        client.read(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="'parquet' does not exist; there are 'pandas', 'polars', 'arrow'"):
        client.read(tmp_path / "db", as_="parquet")
    with pytest.raises(ValueError, match="start="):
        client.read(tmp_path / "db", start=math.nan)
    monkeypatch.setenv("TELEM", "no-such-program")
    with pytest.raises(client.TelemetryError, match="no-such-program.*not on PATH"):
        client.read(tmp_path / "db")


def test_packages_that_are_missing_are_named_and_the_default_is_what_is_there(serve, tmp_path, monkeypatch):
    server = serve(tmp_path / "db")
    put(server)
    server.stop()
    reader = importlib.import_module("telem._read")
    absent = set()

    def import_module(name):
        if name.split(".")[0] in absent:
            raise ImportError(name)
        return importlib.import_module(name)

    monkeypatch.setattr(reader, "import_module", import_module)
    absent.add("pandas")
    assert isinstance(client.read(tmp_path / "db"), polars.DataFrame)
    with pytest.raises(client.TelemetryError, match="needs the package pandas, which is not installed here"):
        client.read(tmp_path / "db", as_="pandas")
    absent.add("polars")
    assert isinstance(client.read(tmp_path / "db"), pyarrow.Table)
    absent.add("pyarrow")
    with pytest.raises(client.TelemetryError, match="telem.read needs the package pyarrow"):
        client.read(tmp_path / "db")
