"""Dragon's classes in `telem.dragon`, and what `telem run --dragon` puts in place on import: against the real server."""

import contextlib
import inspect
import json
import os
import pathlib
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import dragon_environment
import pytest
from conftest import PATIENCE_S, TELEM
from test_client import VERSIONS, interpreter

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
sys.path.insert(0, str(CLIENT))

import telem.dragon as ours  # noqa: E402
from telem import Telemetry as Client  # noqa: E402
from telem import TelemetryError  # noqa: E402
from telem.dragon import (  # noqa: E402
    HOOK, AnalysisClient, CollectorDetectorGroup, CollectorGroup, Detector, DragonTelemetryWidget, OfflineTelemetry,
    SlowGPUDetector, Telemetry, TimeKeeper, _config, _groups, _offline, _widget,
)

SAMPLE_DATA = {
    "load_average": {1722010526: 0.58, 1722010527: 0.58, 1722010528: 0.62},
    "used_RAM": {1722010526: 9.3, 1722010527: 9.3, 1722010528: 9.3},
    "cpu_percent": {1722010526: 0.8, 1722010527: 1.6, 1722010528: 0.8},
    "num_running_processes": {1722010526: 21.0, 1722010527: 20.0, 1722010528: 23.0},
    "def_pool_utilization": {1722010526: 0.003910064, 1722010527: 0.00093, 1722010528: 0.001234},
}
"""What the tests of Dragon use: shared facts to compare with."""
FIRST = 1722010526
SURROUNDINGS = ("TELEM_", "DRAGON_", "SLURM_", "OMPI_", "PMI", "RANK", "LOCAL_", "MPI_", "CUDA_", "ROCR_", "PYTHONPATH")


def alone():
    """The environment without anything that says where and what a process is."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(SURROUNDINGS)}
    return {**clean, "TELEM": TELEM}


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch):
    for name in list(os.environ):
        if name.startswith(SURROUNDINGS) and name != "TELEM":
            monkeypatch.delenv(name)


@pytest.fixture
def served(serve, tmp_path, monkeypatch):
    """A running server that the environment names."""
    server = serve(tmp_path / "db")
    server.file = str(tmp_path / "db" / "connection.json")
    monkeypatch.setenv("TELEM_CONNECTION", server.file)
    return server


@pytest.fixture
def client(served):
    connected = AnalysisClient()
    connected.connect(timeout=PATIENCE_S)
    return connected


def until(condition):
    """Waits until something is so, with an end to patience."""
    patience = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < patience, "it never came about"
        threading.Event().wait(0.01)


def notes(server):
    server.connection.request("GET", "/api/annotations?start_time=1")
    return [note["description"] for note in json.loads(server.connection.getresponse().read())]


# Telemetry.


def test_its_own_arguments_and_every_point_of_a_second_arrive(served):
    telemetry = Telemetry("http://localhost:4243/api/metrics", PATIENCE_S, None)
    for number in range(200):
        telemetry.add_data("burst", number)
        telemetry.add_data("told", number, FIRST)
    telemetry.add_data("tagged", 1.5, None, 1, "rank", 3)
    telemetry.add_data(ts_metric_name="named", ts_data=2, timestamp=FIRST, telemetry_level=1, tagk="puid", tagv="17")
    telemetry.add_data("half", 3, tagk="gpu")
    telemetry.shutdown()
    assert served.sql("SELECT count(*) AS n, count(DISTINCT ts) AS t FROM burst") == [{"n": 200, "t": 200}]
    assert served.sql("SELECT count(DISTINCT ts) AS t, max(to_unixtime(ts)) AS s FROM told") == [{"t": 200, "s": FIRST}]
    assert served.sql("SELECT value, rank FROM tagged") == [{"value": 1.5, "rank": "3"}]
    assert served.sql("SELECT value, puid, to_unixtime(ts) AS s FROM named") == [{"value": 2.0, "puid": "17", "s": FIRST}]
    half = "SELECT count(*) AS n FROM samples WHERE metric = 'half' AND tags['gpu'] IS NULL"
    assert served.sql(half) == [{"n": 1}]


@pytest.mark.parametrize("dragons, telems, level", [("2", "4", 2), (None, "3", 3), ("0", "4", 0), ("5", None, 5), ("two", "2", 2), (None, None, 1)])
def test_the_level_is_that_of_dragon_before_that_of_telem(served, monkeypatch, dragons, telems, level):
    for name, value in [("DRAGON_TELEMETRY_LEVEL", dragons), ("TELEM_LEVEL", telems)]:
        if value is not None:
            monkeypatch.setenv(name, value)
    telemetry = Telemetry()
    assert telemetry.level == level
    for detail in range(1, 7):
        telemetry.add_data("detail", detail, telemetry_level=detail)
    telemetry.finalize()
    kept = served.sql("SELECT count(*) AS n FROM samples WHERE metric = 'detail'")[0]["n"]
    assert kept == level


def test_shutdown_and_finalize_end_nothing(served):
    telemetry, other = Telemetry(), Telemetry()
    for ends in [telemetry.shutdown, telemetry.finalize, telemetry.shutdown]:
        telemetry.add_data("more", 1)
        ends()
        other.add_data("more", 2)
    other.shutdown()
    assert (telemetry.level, served.sql("SELECT count(*) AS n FROM more")) == (1, [{"n": 6}])


def test_start_says_that_it_runs_and_turns_on_what_was_started_at_level_0(served, monkeypatch, capsys):
    Telemetry().start()
    assert capsys.readouterr().out == "Telemetry is already running with telemetry level 1.\n"
    monkeypatch.setenv("DRAGON_TELEMETRY_LEVEL", "0")
    telemetry = Telemetry()
    telemetry.add_data("before", 1)
    telemetry.start(telemetry_level=2)
    telemetry.add_data("after", 1, telemetry_level=2)
    telemetry.shutdown()
    assert (telemetry.level, os.environ["DRAGON_TELEMETRY_LEVEL"]) == (2, "2")
    assert served.sql("SELECT DISTINCT metric FROM samples") == [{"metric": "after"}]


def test_without_telem_everything_returns_and_start_says_what_to_do(caplog):
    telemetry = Telemetry()
    telemetry.add_data("x", 1)
    telemetry.start(2)
    telemetry.shutdown()
    assert telemetry.level == 0 and "telem run --dragon" in caplog.text


def test_a_timeout_is_dragons_error_where_nobody_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("TELEM_URL", "http://127.0.0.1:1")
    with pytest.raises(TimeoutError, match="Telemetry took longer than expected to start."):
        Telemetry(timeout=0.3)
    telemetry = Telemetry()
    telemetry.add_data("kept", 1)
    assert telemetry.level == 1 and telemetry.stats()["queued"] == 1
    with pytest.raises(FileNotFoundError):
        Telemetry(telem_cfg=str(tmp_path / "none.yaml"))
    yaml = tmp_path / "telemetry.yaml"
    yaml.write_text("tsdb_server_port: 4343\n")
    Telemetry(telem_cfg=yaml)
    assert os.environ["DRAGON_TELEMETRY_CONFIG"] == str(yaml)
    monkeypatch.delenv("DRAGON_TELEMETRY_CONFIG")


def test_a_telem_that_is_gone_is_not_felt(served):
    telemetry = Telemetry()
    telemetry.add_data("x", 1)
    telemetry.shutdown()
    served.kill()
    for number in range(100):
        telemetry.add_data("x", number)
    telemetry.shutdown()
    assert telemetry.stats()["queued"] == 100


# AnalysisClient.


def test_answers_have_dragons_shape_and_its_test_data(served, client):
    telemetry = Telemetry()
    for metric, points in SAMPLE_DATA.items():
        for second, value in points.items():
            telemetry.add_data(metric, value, second)
    for metric, points in SAMPLE_DATA.items():
        (answer,) = client.get_data(metric, start_time=FIRST)
        host = answer["tags"].pop("host")
        dps = {str(second): value for second, value in points.items()}
        assert answer == {"metric": metric, "tags": {}, "aggregateTags": [], "dps": dps} and host
    every = client.get_data(list(SAMPLE_DATA), tags="host", start_time=FIRST)
    assert sorted(answer["metric"] for answer in every) == sorted(SAMPLE_DATA)
    assert client.get_metrics() == set(SAMPLE_DATA)
    assert client.get_data("bad_metric_name", start_time=FIRST) == []
    assert client.get_data("load_average") == [], "the last five minutes"
    assert list(client.get_data("load_average", start_time=FIRST + 1)[0]["dps"]) == ["1722010527", "1722010528"]
    assert client.get_data("load_average", start_time=FIRST + 3) == []


def test_lines_are_those_of_the_tags_that_are_asked_for_in_the_order_of_hosts(served, client):
    def point(host, value, second=FIRST, **tags):
        return {"metric": "m", "timestamp": second, "value": value, "tags": {"host": host, **tags}}

    served.put([
        point("n2", 1, gpu="0"), point("n2", 2, gpu="1"), point("n1", 3, gpu="0", rank="0"), point("n1", 4, gpu="0", rank="1"),
        point("n1", 5, second=FIRST + 1),
        {"metric": "m", "timestamp": FIRST * 1000 + 200, "value": 6, "tags": {"host": "n1", "gpu": "0", "rank": "0"}},
    ])
    lines = client.get_data("m", tags=["host", "gpu", "rank"], start_time=0)
    assert [(line["tags"], line["dps"]) for line in lines] == [
        ({"host": "n1", "gpu": "0", "rank": "0"}, {"1722010526": 6.0}),
        ({"host": "n1", "gpu": "0", "rank": "1"}, {"1722010526": 4.0}),
    ]
    by_gpu = client.get_data("m", tags="gpu", start_time=0)
    assert [line["tags"] for line in by_gpu] == [{"host": "n1", "gpu": "0"}, {"host": "n2", "gpu": "0"}, {"host": "n2", "gpu": "1"}]
    by_host = client.get_data("m", start_time=0)
    assert [(line["tags"]["host"], sorted(line["dps"])) for line in by_host] == [("n1", ["1722010526", "1722010527"]), ("n2", ["1722010526"])]
    assert by_host[0]["dps"]["1722010526"] == 6.0, "the latest of the second"


def test_what_was_just_added_is_in_the_answer(client):
    Telemetry().add_data("own", 7)
    assert [list(line["dps"].values()) for line in client.get_data("own")] == [[7.0]]


def test_its_errors_are_dragons(served, monkeypatch):
    client = AnalysisClient()
    for ask in [lambda: client.get_data("x"), client.get_metrics, client.db_dump]:
        with pytest.raises(RuntimeError, match="Unable to make a request without first connecting to the server."):
            ask()
    client.connect(PATIENCE_S)
    for metrics, tags in [(5, None), ("x", 5), ([5], None), ([""], None), (["x"], [7])]:
        with pytest.raises(AttributeError):
            client.get_data(metrics, tags)
    with pytest.raises(AttributeError):
        client.get_data("x", start_time="yesterday")
    assert client.get_data("it's", tags=["a'b"]) == [] and client.get_data([]) == []
    with pytest.raises(RuntimeError, match="runtime is not running here.*hostnames \\['n1'\\]"):
        client.reboot(exclude_hostnames="n1")
    served.kill()
    with pytest.raises(RuntimeError):
        client.get_metrics()
    monkeypatch.delenv("TELEM_CONNECTION")
    with pytest.raises(RuntimeError, match="TELEM_URL are not set"):
        AnalysisClient().connect()
    monkeypatch.setenv("TELEM_URL", "http://127.0.0.1:1")
    with pytest.raises(RuntimeError, match="does not answer"):
        AnalysisClient().connect(timeout=0.2)


def run(*command, **environment):
    done = subprocess.run(command, env={**alone(), **environment}, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


DUMP = """
from telem.dragon import AnalysisClient
client = AnalysisClient()
client.connect()
print(*(f"{answer['type']} {answer['result']['status']} {answer['result']['message']}" for answer in client.db_dump()))
"""


def test_db_dump_says_where_the_job_is_saved(telem, tmp_path):
    def said(*where):
        return telem("-q", "run", "--listen", "127.0.0.1:0", *where, "--", "env", f"PYTHONPATH={CLIENT}", sys.executable, "-c", DUMP)

    assert said("--save", tmp_path / "out").startswith(f"dump success telem saves the job while it runs, in {tmp_path}/out;")
    assert said("--no-save").startswith("dump error the job is not saved")


NODES = """
import glob, json, os, sys, time
from telem.dragon import AnalysisClient
live = os.path.dirname(os.path.dirname(os.environ["TELEM_CONNECTION"]))
head = AnalysisClient()
head.connect(timeout=60)
until = time.monotonic() + 60
while len(head.get_data("load_average")) < 2 and time.monotonic() < until:
    time.sleep(0.1)
start = int(time.time()) - 300
for file in sorted(glob.glob(live + "/*/connection.json")):
    client = AnalysisClient(address=file)
    client.connect(timeout=60)
    print([line["tags"]["host"] for line in client.get_data("load_average", start_time=start)])
print(len(head.db_dump()))
"""


def test_every_node_of_a_job_is_in_the_answer_and_answers(tmp_path):
    (tmp_path / "live").mkdir()
    command = [TELEM, "-q", "run", "--level", "2", "--local", "2", "--no-save", "--listen", "127.0.0.1:0"]
    environment = {**alone(), "TMPDIR": str(tmp_path / "live"), "PYTHONPATH": str(CLIENT)}
    done = subprocess.run([*command, "--", sys.executable, "-c", NODES], env=environment, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
    *answers, dumps = done.stdout.splitlines()
    assert len(answers) == 3 and len(set(answers)) == 1 and dumps == "3", "the head and two agents"
    assert re.fullmatch(r"\['(.*)-1', '\1-2'\]", answers[0])


# Groups.


class Eight(CollectorGroup):
    @staticmethod
    def collector_test(collector_args):
        collector_args.append(8)
        return 8


def collected(server, metric):
    return server.sql(f"SELECT count(*) AS n FROM samples WHERE metric = '{metric}'")[0]["n"]


def test_a_collector_adds_a_point_for_each_call(served, client):
    calls = []
    group = Eight(collection_rate=0.01, collector_args=calls)
    group.start()
    until(lambda: len(calls) >= 20)
    group.stop()
    made = len(calls)
    (line,) = client.get_data("user-cg")
    assert set(line["dps"].values()) == {8.0} and collected(served, "user-cg") == made
    assert set(line["tags"]) == {"host"}
    group.start()
    until(lambda: len(calls) > made)
    group.stop()


def test_a_collector_that_fails_goes_on_and_says_why(served, caplog):
    class Moody(CollectorGroup):
        calls = 0

        @staticmethod
        def collector_test(collector_args):
            Moody.calls += 1
            if Moody.calls % 2:
                raise ValueError("not now")
            return Moody.calls

    group = Moody("moody", False, 0.01)
    group.start()
    until(lambda: Moody.calls >= 6)
    group.stop()
    Telemetry().shutdown()
    assert collected(served, "moody") >= 2 and "the collector of 'moody' failed: ValueError: not now" in caplog.text


def test_each_gpu_has_a_collector_of_its_own(served, client, monkeypatch):
    class OfGpu(CollectorGroup):
        @staticmethod
        def collector_test(collector_args):
            return ours.current_gpu()

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-b,6")
    group = OfGpu("gpu-number", per_gpu=True, collection_rate=0.01)
    assert [(place.gpu, place.number) for place in group.generate_policies()] == [("4", 0), ("GPU-b", 1), ("6", 2)]
    group.start()
    until(lambda: {line["tags"]["gpu"] for line in client.get_data("gpu-number", ["gpu"])} == {"4", "GPU-b", "6"})
    group.stop()
    values = {line["tags"]["gpu"]: set(line["dps"].values()) for line in client.get_data("gpu-number", ["gpu"])}
    assert values == {"4": {0.0}, "GPU-b": {1.0}, "6": {2.0}}
    assert ours.current_gpu() is None


@pytest.mark.parametrize("environment, of_node, of_job, gpus", [
    ({}, True, True, []),
    ({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0"}, True, True, []),
    ({"SLURM_PROCID": "4", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0"}, True, False, []),
    ({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0"}, False, False, []),
    ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}, False, False, [("1", 1), ("3", 3)]),
    ({"PMI_RANK": "2", "MPI_LOCALRANKID": "0", "CUDA_VISIBLE_DEVICES": "0,1"}, True, False, [("0", 0), ("1", 1)]),
    ({"PMI_RANK": "3", "MPI_LOCALRANKID": "1", "CUDA_VISIBLE_DEVICES": "0,1"}, False, False, []),
    ({"RANK": "7", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "ROCR_VISIBLE_DEVICES": "3"}, False, False, [("3", 0)]),
    ({"CUDA_VISIBLE_DEVICES": "-1"}, True, True, []),
])
def test_the_first_process_of_a_node_collects_and_the_first_of_a_job_detects(environment, of_node, of_job, gpus):
    assert (_groups.is_first_of_node(environment), _groups.is_first_of_job(environment)) == (of_node, of_job)
    if "VISIBLE" in str(environment):
        assert _groups.own_gpus(environment) == gpus


class Removes(Detector):
    """Says to remove whatever it is given."""

    @staticmethod
    def analyze_data(data, analysis_args):
        return analysis_args(data)


def test_a_detector_removes_what_is_not_sacred(served):
    acted = []
    detector = Removes(
        "m", 0.01, ["n1", "n2"], None, ["host"], lambda data: (True, ["n2", "n3"]), action=acted.append,
    )
    detector.start()
    until(lambda: acted)
    detector.stop()
    assert acted == [["n3"]] and notes(served) == ["detector: restart without n3"]


def test_a_detector_asks_from_its_start_on_and_acts_once_for_each_finding(served):
    answers = [(False, []), ValueError("no idea"), (True, ["a"]), (True, ["a"]), (True, ["a", "b"]), (False, None), (True, ["a"])]
    seen, triggered, asked = [], [], threading.Event()

    class Watch(Detector):
        @staticmethod
        def analyze_data(data, analysis_args):
            seen.append(data)
            if len(seen) > len(answers):
                asked.set()
                return False, []
            answer = answers[len(seen) - 1]
            if isinstance(answer, Exception):
                raise answer
            return answer

        @staticmethod
        def trigger_restart(nodes_to_remove, sacred_nodes, restartable_ddicts):
            triggered.append((nodes_to_remove, sacred_nodes, restartable_ddicts))

    telemetry = Telemetry()
    telemetry.add_data("watched", 1, int(time.time()) - 60)
    watch = Watch("watched", 0.01, sacred_nodes=["s"], restartable_ddicts=["d"])
    watch.start()
    telemetry.add_data("watched", 2)
    assert asked.wait(PATIENCE_S)
    watch.stop()
    assert triggered == [(nodes, ["s"], ["d"]) for nodes in (["a"], ["a", "b"], ["a"])]
    assert {value for data in seen for line in data for value in line["dps"].values()} == {2.0}


def test_a_detector_may_be_stopped_by_its_own_action_and_one_that_fails_goes_on(served, caplog):
    acted, ended = [], threading.Event()

    def act(nodes):
        acted.append(nodes)
        if len(acted) == 1:
            raise OSError("the first fails")
        detector.stop()
        ended.set()

    detector = Removes("m", 0.01, analysis_args=lambda data: (True, [f"n{len(acted)}"]), action=act)
    detector.start()
    assert ended.wait(PATIENCE_S)
    assert acted == [["n0"], ["n1"]]
    assert "OSError: the first fails" in caplog.text and "nothing was restarted" in caplog.text


def test_without_dragons_runtime_nothing_is_destroyed(served, caplog):
    class Kept:
        def destroy(self, allow_restart):
            raise AssertionError("its data would be lost for nothing")

    Detector.trigger_restart(["n1"], None, [Kept()])
    Detector.trigger_restart(["n1"], ["n1"], [Kept()])
    assert sorted(notes(served)) == ["detector: restart without n1", "detector: restart, but all nodes that it names are sacred"]


def test_a_group_that_collects_and_detects(served):
    class Both(CollectorDetectorGroup):
        @staticmethod
        def collector_test(collector_args):
            return collector_args

        @staticmethod
        def analyze_data(data, analysis_args):
            values = [value for line in data for value in line["dps"].values()]
            return max(values, default=0) > analysis_args, [line["tags"]["host"] for line in data]

    acted = threading.Event()
    both = Both("both", False, 0.01, [], None, ["host"], 5, 4, action=lambda nodes: acted.set())
    both.start()
    assert acted.wait(PATIENCE_S)
    both.stop()
    assert collected(served, "both") > 0


def test_what_is_not_implemented_is_said():
    with pytest.raises(NotImplementedError, match="This method should be implemented in the subclass."):
        Detector.analyze_data([], None)
    with pytest.raises(NotImplementedError, match="This method should be implemented in the subclass."):
        CollectorGroup.collector_test(None)
    with pytest.raises(TypeError, match="abstract"):
        CollectorGroup()


def gpus(seconds, hosts=4, each=4, points=6):
    """Answers of `slow-gpu`: `seconds` of (host, gpu) is what a contraction takes there."""
    return [
        {"metric": "slow-gpu", "tags": {"host": f"n{host}", "gpu": str(gpu)}, "aggregateTags": [],
         "dps": {str(FIRST + n): seconds(host, gpu) + n * 1e-4 for n in range(points)}}
        for host in range(hosts) for gpu in range(each)
    ]


def test_the_node_of_a_slow_gpu_is_found():
    judge = SlowGPUDetector.analyze_data
    assert judge(gpus(lambda host, gpu: 2.0), None) == (False, []), "all alike"
    assert judge(gpus(lambda host, gpu: 3.0 if (host, gpu) == (2, 1) else 2.0), None) == (True, ["n2"])
    assert judge(gpus(lambda host, gpu: 1.0 if (host, gpu) == (2, 1) else 2.0), None) == (False, []), "a fast one is none"
    assert judge(gpus(lambda host, gpu: 3.0 if (host, gpu) == (2, 1) else 2.0, points=3), None) == (False, []), "too few points"
    assert judge([], None) == (False, [])
    constant = gpus(lambda host, gpu: 2.0)
    for line in constant:
        line["dps"] = dict.fromkeys(line["dps"], 2.0)
    assert judge(constant, None) == (False, []), "no spread"
    del constant[0]["tags"]["gpu"]
    with pytest.raises(KeyError, match="Unable to find host and gpu in tags"):
        judge(constant, None)


def test_slow_gpus_are_measured_with_pytorch_and_nothing_else_needs_it(served, monkeypatch, caplog):
    detector = SlowGPUDetector(3, None, None, None)
    assert (detector.metric_name, detector.per_gpu, detector.tags) == ("slow-gpu", True, ["host", "gpu"])
    assert detector.sacred_nodes == [detector.sacred_hostname] and detector.sacred_hostname
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TelemetryError, match="pip install torch"):
        SlowGPUDetector.collector_test(None)
    detector.start()
    detector.stop()
    assert "sees no GPU" in caplog.text


# TimeKeeper.


def test_a_timekeeper_logs_sums_with_their_ids(served):
    keeper = TimeKeeper("stages", True, 0.01)
    with keeper.record("load"):
        pass
    keeper.add_elapsed("solve", 2.5)
    keeper.add("solve", 10.0, 11.5)
    keeper.stop()
    Client().flush()
    rows = served.sql("SELECT id, sum(value) AS s FROM stages GROUP BY id ORDER BY id")
    assert [row["id"] for row in rows] == ["load", "solve"] and rows[1]["s"] == 4.0
    assert keeper.empty()


def test_a_timekeeper_counts_without_telem_and_only_where_it_is_to_record():
    keeper = TimeKeeper(recording=True)
    keeper.add_elapsed("a", 1.0)
    keeper.add_elapsed("a", 2.0)
    keeper.add_elapsed("b", 1.0)
    assert keeper.get_timings() == {"a": 3.0, "b": 1.0} and "a  3.000000 s" in str(keeper)
    keeper.reset("a")
    assert keeper.get_timings() == {"a": 0, "b": 1.0}
    keeper.reset_all()
    assert keeper.empty() and keeper.now() > 0
    off = TimeKeeper("off")
    with off.record("a"):
        off.add_elapsed("a", 1.0)
    assert off.empty() and "recording=True" in str(off)
    off.stop()


# The widget.


def test_the_widget_draws_text_where_nothing_else_is_there(served, monkeypatch):
    for package in ["matplotlib", "matplotlib.pyplot", "ipywidgets"]:
        monkeypatch.setitem(sys.modules, package, None)
    widget = DragonTelemetryWidget()
    telemetry = Telemetry()
    began = widget.get_start_time()
    for number in range(8):
        telemetry.add_data("ramp", number, began + number)
        telemetry.add_data("of_gpu", number, began + number, tagk="gpu", tagv=number % 2)
    assert {"ramp", "of_gpu"} <= widget.get_metrics()
    slider = widget.custom_slider()
    drawn = str(widget.render("ramp", slider.value))
    assert drawn.startswith("Metric: ramp\n") and "▁▂▃▄▅▆▇█  0 to 7, last 7" in drawn
    assert str(widget.render("of_gpu", 0.0)).count("(gpu:") == 2
    assert widget.render("none", 1.0).__repr__() == "Metric: none\n(no points)"
    assert "num_running_processes" in str(widget.render(None, 0))
    assert widget.get_data("ramp")[0]["dps"][str(began)] == 0.0


def test_the_widget_says_what_is_missing():
    widget = DragonTelemetryWidget()
    for ask in [widget.get_start_time, widget.get_metrics, lambda: widget.render("x", 0)]:
        with pytest.raises(RuntimeError, match="Telemetry has not been started"):
            ask()
    with pytest.raises(RuntimeError, match="Could not connect to telemetry analysis server."):
        widget.connect()


def test_what_cannot_be_drawn_is_left_out():
    assert _widget._drawn({"1": float("nan")}) == "(no finite points)"
    assert _widget._drawn({"1": 2.0, "100": float("inf")}) == "▅  2 to 2, last 2"


# Offline.


@pytest.mark.parametrize("text, found", [
    ("", {}),
    ("# nothing\n---\n", {}),
    ("dump_node: n1 # there\ndump_dir: /a b\n", {"dump_node": "n1", "dump_dir": "/a b"}),
    ("aggregator_port: 4242\ncollector_rate: 0.5\ntsdb_server_port: '4243'\n", {"aggregator_port": 4242, "collector_rate": 0.5, "tsdb_server_port": "4243"}),
    ("delete_tmdb: true\ndump_dir:\nauth_key: \"a # b\"\n", {"delete_tmdb": True, "dump_dir": None, "auth_key": "a # b"}),
    ("a: 'it''s'\nb: ~\n", {"a": "it's", "b": None}),
    ("invalid: yaml: content: [", None),
    ("just a text", None),
    ("a: [1, 2\n", None),
])
def test_the_yaml_is_read_with_and_without_pyyaml(monkeypatch, text, found):
    for has_yaml in [False, True]:
        if not has_yaml:
            monkeypatch.setitem(sys.modules, "yaml", None)
        else:
            monkeypatch.delitem(sys.modules, "yaml")
        if found is None:
            with pytest.raises(ValueError):
                _config.parsed(text)
        else:
            assert _config.parsed(text) == found


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """Writes the YAML, and names it."""

    def write(text):
        path = tmp_path / "telemetry.yaml"
        path.write_text(text)
        monkeypatch.setenv("DRAGON_TELEMETRY_CONFIG", str(path))

    return write


def test_errors_of_the_configuration_are_dragons(tmp_path, monkeypatch, configured):
    with pytest.raises(ValueError, match="Missing required telemetry configuration keys: dump_node, dump_dir"):
        OfflineTelemetry()
    monkeypatch.setenv("DRAGON_TELEMETRY_CONFIG", str(tmp_path / "none.yaml"))
    with pytest.raises(RuntimeError, match="Failed to load telemetry config from .*none.yaml"):
        OfflineTelemetry()
    file = tmp_path / "file"
    file.write_text("")
    for text, error, why in [
        ("invalid: yaml: content: [", RuntimeError, "Failed to load telemetry config"),
        ("dump_node: n1", ValueError, "Missing required telemetry configuration keys: dump_dir"),
        ("dump_node: ''\ndump_dir: /tmp", ValueError, "keys: dump_node"),
        (f"dump_node: n1\ndump_dir: {tmp_path}/none", FileNotFoundError, "does not exist"),
        (f"dump_node: n1\ndump_dir: {file}", NotADirectoryError, "is not a directory"),
    ]:
        configured(text)
        with pytest.raises(error, match=why):
            OfflineTelemetry()
    configured(f"dump_node: n1\ndump_dir: {tmp_path}")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="No write permission"):
        OfflineTelemetry()


def dump(path, seconds=3):
    """A database as Dragon dumps it, by Python's own SQLite."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE datapoints (metric varchar(50), timestamp varchar(30), value real, tags json)")
        database.execute("CREATE TABLE flags (id INTEGER PRIMARY KEY CHECK (id = 1), is_shutdown BLOB)")
        rows = [(m, str(s), v, "null") for m, points in SAMPLE_DATA.items() for s, v in list(points.items())[:seconds]]
        database.executemany("INSERT INTO datapoints VALUES (?, ?, ?, ?)", rows)
        database.commit()


def test_dumps_of_two_nodes_are_merged_and_a_second_time_too(tmp_path, monkeypatch, configured, telem, replay):
    folder = tmp_path / "dumps" / "telemetry"
    folder.mkdir(parents=True)
    monkeypatch.setenv("TELEM", TELEM)
    monkeypatch.setenv("USER", "jane_doe")
    configured(f"dump_node: n1\ndump_dir: {tmp_path}/dumps\naggregator_port: 0\n")
    offline = OfflineTelemetry()
    assert offline.merge_ts_dbs()[0] == []
    # The second of node002 overlaps the first, as dumps of one job do.
    dump(folder / "ts_jane_doe_node001_20251117_103313.db")
    dump(folder / "ts_jane_doe_node002_20251117_103313.db", seconds=2)
    dump(folder / "ts_jane_doe_node002_20251117_103400.db")
    for _ in range(2):
        hosts, name = offline.merge_ts_dbs()
        assert hosts == ["node001", "node002"] and name.startswith("offline_ts_jane_doe_")
        counted = json.loads(telem("-q", "sql", folder / name, "SELECT host, count(*) AS n FROM samples GROUP BY host ORDER BY host", "--format", "json"))
        assert counted == [{"host": "node001", "n": 15}, {"host": "node002", "n": 15}]
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == [name]


OFFLINE = """
from telem.dragon import OfflineTelemetry
offline = OfflineTelemetry()
hosts, name = offline.merge_ts_dbs()
offline.start_offline_telemetry(hosts, name)
"""


def test_a_merged_database_is_served_until_the_program_is_interrupted(tmp_path, configured):
    folder = tmp_path / "dumps" / "telemetry"
    folder.mkdir(parents=True)
    dump(folder / "ts_me_node001_20251117_103313.db")
    configured(f"dump_node: n1\ndump_dir: {tmp_path}/dumps\naggregator_port: 0\n")
    environment = {**alone(), "PYTHONPATH": str(CLIENT), "DRAGON_TELEMETRY_CONFIG": os.environ["DRAGON_TELEMETRY_CONFIG"], "USER": "me"}
    program = subprocess.Popen([sys.executable, "-c", OFFLINE], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        said = next(line for line in program.stdout if "listening on" in line)
        client = Client(address=said.split("listening on ")[1].split()[0].rstrip("/,.;"))
        assert client.sql("SELECT count(*) AS n FROM samples", strict=True) == [{"n": 15}]
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=PATIENCE_S)
        with pytest.raises(TelemetryError):
            client.sql("SELECT 1", strict=True)
    finally:
        program.kill()
        program.wait()


def test_the_program_for_offline_telemetry_says_what_is_wrong(tmp_path, configured, capsys):
    assert _offline.main([]) == 1
    assert "Missing required telemetry configuration keys" in capsys.readouterr().err
    configured(f"dump_node: n1\ndump_dir: {tmp_path}\n")
    assert _offline.main(["-N", "4"]) == 1
    assert f"there are no dumps in {tmp_path}/telemetry" in capsys.readouterr().err


# What is put in place on import.


def program(script, *arguments, interpreter=sys.executable, hook=HOOK, options=(), **environment):
    """Runs `script` as `telem run --dragon` starts it: with the hook first on PYTHONPATH."""
    command = [interpreter, *options, "-c", script, *map(str, arguments)]
    return subprocess.run(
        command, env={**alone(), "PYTHONPATH": hook, **environment}, capture_output=True, text=True, timeout=PATIENCE_S
    )


PLACES = """
from dragon.telemetry import Telemetry, AnalysisClient, Detector, CollectorGroup, CollectorDetectorGroup, SlowGPUDetector
from dragon.telemetry.telemetry import Telemetry as again
from dragon.telemetry.analysis import AnalysisClient as client
from dragon.telemetry.widget import DragonTelemetryWidget
from dragon.telemetry.offline_telemetry import OfflineTelemetry, start_offline_telemetry, main
from dragon.utils import TimeKeeper
assert again is Telemetry and client is AnalysisClient
for one in (Telemetry, AnalysisClient, Detector, CollectorGroup, CollectorDetectorGroup, SlowGPUDetector, DragonTelemetryWidget, OfflineTelemetry, TimeKeeper):
    print(one.__name__, one.__module__.split(".")[0])
"""


def test_a_program_that_imports_dragon_gets_telem_where_dragon_is_not_installed():
    done = program(PLACES)
    assert done.returncode == 0, done.stderr
    assert {line.split()[1] for line in done.stdout.splitlines()} == {"telem"} and len(done.stdout.splitlines()) == 9


def test_who_asks_whether_dragon_is_there_is_told_the_truth():
    done = program("import importlib.util, sys\ntry:\n    import dragon\nexcept ImportError:\n    print(importlib.util.find_spec('dragon'))")
    assert done.stdout == "None\n", done.stderr
    done = program("import dragon.nothing")
    assert "No module named 'dragon'" in done.stderr
    done = program("import dragon.telemetry.nothing")
    assert "No module named 'dragon.telemetry.nothing'" in done.stderr


def test_a_package_of_ones_own_with_that_name_is_left_alone(tmp_path):
    (tmp_path / "dragon.py").write_text("scales = 7\n")
    done = program(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nimport dragon\nprint(dragon.scales)\nimport dragon.telemetry")
    assert done.stdout == "7\n" and "No module named 'dragon.telemetry'" in done.stderr


def test_nothing_of_telem_is_loaded_before_dragon_is_imported():
    script = "import sys; print(sorted(m for m in sys.modules if m.split('.')[0] in ('telem', 'json', 'importlib.util', 'threading')))"
    assert program(script).stdout == "[]\n"
    with_hook = set(program("import sys; print(*sys.modules)").stdout.split())
    without = set(program("import sys; print(*sys.modules)", hook="").stdout.split())
    assert with_hook - without <= {"sitecustomize"}


def test_the_sites_own_sitecustomize_runs_too_and_its_errors_are_its_own(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.from_site = __file__\n")
    both = os.pathsep.join([HOOK, str(tmp_path)])
    done = program("import sys; print(from_site, sys.modules['sitecustomize'].__file__)\nimport dragon.telemetry", hook=both)
    own = str(tmp_path / "sitecustomize.py")
    assert (done.stdout, done.stderr) == (f"{own} {own}\n", "")
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('broken site')\n")
    broken = program("import dragon.telemetry; print('goes on')", hook=both)
    assert broken.stdout == "goes on\n" and "broken site" in broken.stderr
    (tmp_path / "again").symlink_to(HOOK)
    same = os.pathsep.join([str(tmp_path / "again"), HOOK, f"{HOOK}/", f"{HOOK}/../hook"])
    assert program("print('once')", hook=same).stdout == "once\n"


def test_whatever_fails_in_it_is_silent_unless_a_log_is_wanted(tmp_path):
    (tmp_path / "telem").mkdir()
    (tmp_path / "telem" / "__init__.py").write_text("raise RuntimeError('an odd telem')\n")
    odd = os.pathsep.join([HOOK, str(tmp_path)])
    for log, said in [("", ""), ("info", "telem: dragon.telemetry is not put in place: RuntimeError: an odd telem\n")]:
        done = program("try:\n    import dragon.telemetry\nexcept ImportError as error:\n    print(error)", hook=odd, TELEM_LOG=log)
        assert done.returncode == 0 and done.stdout == "No module named 'dragon'\n"
        assert set(done.stderr.splitlines(keepends=True)) == ({said} if said else set())


@pytest.mark.parametrize("options, environment", [(["-I"], {}), (["-E"], {}), (["-S"], {}), ([], {"TELEM_DRAGON": "0"})])
def test_it_is_not_in_place_where_python_or_the_user_says_so(options, environment):
    done = program("import dragon.telemetry", options=options, **environment)
    assert "No module named 'dragon'" in done.stderr


def test_children_of_every_kind_have_it_too(served, tmp_path):
    script = tmp_path / "children.py"
    script.write_text("""
import multiprocessing, subprocess, sys
def child(number):
    from dragon.telemetry import Telemetry
    telemetry = Telemetry()
    telemetry.add_data("child", number)
    telemetry.shutdown()
if __name__ == "__main__":
    for number, method in enumerate(["spawn", "fork", "forkserver"]):
        process = multiprocessing.get_context(method).Process(target=child, args=(number,))
        process.start(); process.join()
        assert process.exitcode == 0, method
    subprocess.run([sys.executable, "-c", "from dragon.telemetry import Telemetry; Telemetry().add_data('child', 3)"], check=True)
""")
    run(sys.executable, str(script), PYTHONPATH=HOOK, TELEM_CONNECTION=served.file)
    assert served.sql("SELECT value FROM child ORDER BY value") == [{"value": float(n)} for n in range(4)]


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.8"])
def test_pythons_that_are_too_old_go_on_as_if_it_were_not_there(version, tmp_path):
    executable = interpreter(version)
    if executable is None:
        pytest.skip(f"no Python {version} on this machine")
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.from_site = 1\n")
    both = os.pathsep.join([HOOK, str(tmp_path)])
    done = program("import sys; sys.stdout.write(str(sys.from_site))\nimport dragon.telemetry", interpreter=executable, hook=both)
    assert done.stdout == "1" and "No module named" in done.stderr and "sitecustomize" not in done.stderr
    done = program("import sys; sys.stdout.write('goes on')", interpreter=executable)
    assert (done.stdout, done.stderr) == ("goes on", "")


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_in_place_on_every_python_that_is_here(served, version):
    executable = interpreter(version)
    if executable is None:
        pytest.skip(f"no Python {version} on this machine")
    done = program(PLACES, interpreter=executable, PYTHONWARNINGS="error")
    assert (done.returncode, done.stderr) == (0, "")
    whole = (
        "from dragon.telemetry import AnalysisClient, Telemetry\nTelemetry(timeout=60).add_data('x', 5)\n"
        "client = AnalysisClient()\nclient.connect()\nprint(client.get_data('x')[0]['dps'])"
    )
    done = program(whole, interpreter=executable, TELEM_CONNECTION=served.file)
    assert ": 5.0}" in done.stdout, done.stderr


def test_a_virtual_environment_has_it_too(tmp_path):
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    done = program("from dragon.telemetry import Telemetry; print(Telemetry.__module__)", interpreter=str(tmp_path / "venv/bin/python"))
    assert done.stdout == "telem.dragon._telemetry\n", done.stderr


# The real package.

real = pytest.mark.skipif(not dragon_environment.HAS_WHEELS, reason="dragonhpc has wheels for CPython 3.11 to 3.13 on Linux")


@pytest.fixture(scope="session")
def dragons_python():
    return dragon_environment.python()


SIGNATURES = """
import inspect, json, sys
from importlib import import_module
said = {}
for place, names in json.loads(sys.argv[1]).items():
    for name in names:
        found = getattr(import_module(place), name)
        methods = {n: m for n, m in inspect.getmembers(found) if callable(m) and (not n.startswith("_") or n == "__init__")}
        for method, function in methods.items():
            parameters = inspect.signature(function).parameters.values()
            said[f"{name}.{method}"] = [[p.name, str(p.kind), repr(p.default)] for p in parameters]
print(json.dumps(said))
"""


@real
def test_every_method_of_dragons_has_its_name_and_its_arguments_here(dragons_python):
    places = {
        "dragon.telemetry": ["Telemetry", "AnalysisClient", "Detector", "CollectorGroup", "CollectorDetectorGroup", "SlowGPUDetector"],
        "dragon.telemetry.widget": ["DragonTelemetryWidget"],
        "dragon.telemetry.offline_telemetry": ["OfflineTelemetry"],
        "dragon.utils": ["TimeKeeper"],
    }
    done = subprocess.run([dragons_python, "-c", SIGNATURES, json.dumps(places)], env=alone(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert len(theirs) > 40
    for method, wanted in theirs.items():
        name, _, attribute = method.partition(".")
        mine = inspect.signature(getattr(getattr(ours, name), attribute)).parameters.values()
        here = [[p.name, str(p.kind), repr(p.default)] for p in mine]
        wanted = [one for one in wanted if one[1] != "VAR_KEYWORD"]
        by_position = [one for one in here if one[1] == str(inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        for at, one in enumerate(wanted):
            if one[1] == "KEYWORD_ONLY":
                assert one in here, method
            else:
                assert by_position[at][:1] == one[:1] and by_position[at][2] == one[2], f"{method}: {one} is {by_position[at]} here"


@real
def test_beside_the_real_package_telemetry_stays_dragons_and_the_rest_is_telems(dragons_python):
    done = program(PLACES, interpreter=dragons_python)
    assert done.returncode == 0, done.stderr
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        "Telemetry": "dragon", "TimeKeeper": "dragon",
        **dict.fromkeys(["AnalysisClient", "Detector", "CollectorGroup", "CollectorDetectorGroup", "SlowGPUDetector", "DragonTelemetryWidget", "OfflineTelemetry"], "telem"),
    }
    done = program("import dragon, inspect, dragon.telemetry; print(inspect.getsource(dragon.telemetry) != '')", interpreter=dragons_python)
    assert done.stdout == "True\n", done.stderr


@real
def test_without_what_dragons_classes_import_telems_serve_alone(dragons_python):
    done = program(f"import sys; sys.modules['requests'] = None\n{PLACES}", interpreter=dragons_python)
    assert done.returncode == 0, done.stderr
    assert "Telemetry telem" in done.stdout


@real
def test_the_widget_draws_a_figure_where_matplotlib_is(served, dragons_python):
    script = """
from telem.dragon import Telemetry, DragonTelemetryWidget
widget = DragonTelemetryWidget()
Telemetry().add_data("drawn", 1)
figure, slider = widget.render("drawn", 0), widget.custom_slider()
print(type(figure).__name__, figure.axes[0].get_title(), len(figure.axes[0].lines), type(slider).__name__)
"""
    done = program(script, interpreter=dragons_python, hook=str(CLIENT), TELEM_CONNECTION=served.file, MPLBACKEND="agg")
    assert done.stdout == "Figure Metric: drawn 1 FloatSlider\n", done.stderr


# The real class against Dragon's port of telem.


def run_dragon(tmp_path, *command, **environment):
    """Runs a command under `telem run --dragon`; the directory where it is saved, and what the command said."""
    out, live = tmp_path / "out", tmp_path / "live"
    # What a killed telem leaves goes with the test.
    live.mkdir()
    environment = {"TMPDIR": str(live), **environment}
    whole = [TELEM, "run", "--dragon", "--level", "2", "--listen", "127.0.0.1:0", "--save", str(out), "--", *map(str, command)]
    done = subprocess.run(whole, env={**alone(), **environment}, capture_output=True, text=True, timeout=2 * PATIENCE_S, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


MANY = """
import multiprocessing, sys
from dragon.telemetry.telemetry import Telemetry
def log(rank):
    telemetry = Telemetry(timeout=60)
    assert telemetry.level == 2, telemetry.level
    for number in range(int(sys.argv[2])):
        telemetry.add_data("theirs", rank * 1000 + number, tagk="rank", tagv=rank)
        telemetry.add_data("untagged", rank * 1000 + number)
        telemetry.add_data("too_detailed", 1, telemetry_level=3)
if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    crowd = [context.Process(target=log, args=(rank,)) for rank in range(int(sys.argv[1]))]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    assert all(one.exitcode == 0 for one in crowd)
    other = Telemetry(timeout=60)
    Telemetry(timeout=60).shutdown()
    other.add_data("after_shutdown", 1)
"""


@real
@pytest.mark.parametrize("processes, each", [(1, 200), (64, 20)])
def test_dragons_own_class_loses_nothing(dragons_python, tmp_path, telem, processes, each):
    script = tmp_path / "many.py"
    script.write_text(MANY)
    out, _ = run_dragon(tmp_path, dragons_python, script, processes, each)
    found = json.loads(telem("-q", "sql", out, "SELECT metric, count(*) AS n, count(DISTINCT value) AS v FROM samples WHERE metric IN ('theirs', 'untagged', 'too_detailed', 'after_shutdown') GROUP BY 1 ORDER BY 1", "--format", "json"))
    total = processes * each
    assert found == [{"metric": "after_shutdown", "n": 1, "v": 1}] + [{"metric": m, "n": total, "v": total} for m in ("theirs", "untagged")]


GONE = """
import os, signal, sys, time
from dragon.telemetry.telemetry import Telemetry
import json, requests
telemetry = Telemetry(timeout=60)
telemetry.add_data("before", 1)
os.kill(json.load(open(os.environ["TELEM_CONNECTION"]))["pid"], signal.SIGKILL)
try:
    while True:
        telemetry.add_data("after", 1)
        time.sleep(0.01)
except requests.ConnectionError as error:
    print("ConnectionError")
try:
    Telemetry(timeout=0.5)
except TimeoutError as error:
    print(error)
"""


@real
def test_dragons_own_class_raises_its_own_errors_when_telem_is_gone(dragons_python, tmp_path):
    script = tmp_path / "gone.py"
    script.write_text(GONE)
    _, said = run_dragon(tmp_path, dragons_python, script)
    assert said.splitlines() == ["ConnectionError", "Telemetry took longer than expected to start."]


WHOLE = """
import time, sys
import dragon
import multiprocessing as mp
from dragon.telemetry import AnalysisClient, CollectorGroup, Detector, Telemetry


class Constant(CollectorGroup):
    @staticmethod
    def collector_test(collector_args):
        return collector_args


class Watch(Detector):
    @staticmethod
    def analyze_data(data, analysis_args):
        analysis_args.append(len(data))
        return False, []


def work(number):
    telemetry = Telemetry()
    telemetry.add_data("work", number, tagk="number", tagv=number)
    return telemetry.level


if __name__ == "__main__":
    mp.set_start_method("dragon")
    telemetry = Telemetry()
    group = Constant("constant", collection_rate=0.1, collector_args=8)
    group.start()
    seen = []
    watch = Watch("constant", collection_rate=0.1, analysis_args=seen)
    watch.start()
    with mp.Pool(4) as pool:
        levels = set(pool.map(work, range(40)))
    client = AnalysisClient()
    client.connect(timeout=60)
    until = time.monotonic() + 60
    while not client.get_data("constant") or 1 not in seen:
        assert time.monotonic() < until
        time.sleep(0.05)
    watch.stop()
    group.stop()
    lines = client.get_data("work", tags=["number"])
    print("answered", Telemetry.__module__, levels, len(lines), client.get_data("constant")[0]["dps"].popitem()[1], flush=True)
    telemetry.shutdown()
"""


@real
def test_a_whole_program_of_dragons_runtime_is_answered_by_telem(dragons_python, tmp_path, telem):
    script = tmp_path / "whole.py"
    script.write_text(WHOLE)
    launcher = pathlib.Path(dragons_python).with_name("dragon")
    path = os.pathsep.join([str(launcher.parent), os.environ["PATH"]])
    out, said = run_dragon(tmp_path, launcher, "-s", script, PYTHONPATH=HOOK, PATH=path)
    assert "answered dragon.telemetry.telemetry {2} 40 8.0" in said
    assert json.loads(telem("-q", "sql", out, "SELECT count(*) AS n FROM work", "--format", "json")) == [{"n": 40}]
