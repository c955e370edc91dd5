"""What a sample gets from where it came: on the socket `host` and `rank`, by every way in; on TCP nothing."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from conftest import PATIENCE_S, TELEM

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
TIME = 1_767_322_800

# Says what stands in its second argument to where the first leads, and reads until the other end has said all.
TALK = """
import json, socket, sys
way, said = json.loads(sys.argv[1]), sys.argv[2].encode()
talk = socket.socket(socket.AF_UNIX) if isinstance(way, str) else socket.socket()
talk.connect(way if isinstance(way, str) else tuple(way))
talk.sendall(said)
if not said[:1].isupper():
    talk.shutdown(socket.SHUT_WR)
answer = b""
while chunk := talk.recv(65536):
    answer += chunk
sys.stdout.write(answer.decode())
"""


@pytest.fixture
def served(serve, tmp_path):
    server = serve(tmp_path / "db", "--node", "n7")
    server.file = str(tmp_path / "db" / "connection.json")
    known = json.loads(pathlib.Path(server.file).read_text())
    host, port = server.address.split(":")
    server.ways = {"socket": known["socket"], "tcp": [host, int(port)]}
    return server


def environment(**more):
    ours = ("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK")
    return {**{name: value for name, value in os.environ.items() if not name.startswith(ours)}, **more}


def talk(way, said, **more):
    done = subprocess.run(
        [sys.executable, "-c", TALK, json.dumps(way), said],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def posted(path, body):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n{body}"


def points(tags):
    return json.dumps([{"metric": "m", "timestamp": TIME + second, "value": 1, "tags": tags} for second in range(2)])


def line(tags):
    return "m" + "".join(f",{key}={value}" for key, value in tags.items())


SAYING = {
    "put": lambda tags: posted("/api/put", points(tags)),
    "a put with a fault": lambda tags: posted("/api/put", json.dumps([*json.loads(points(tags)), {"metric": ""}])),
    "line protocol": lambda tags: posted("/write?precision=s", f"{line(tags)} value=1 {TIME}\n{line(tags)} value=2 {TIME + 1}"),
    "line protocol 2": lambda tags: posted("/api/v2/write?precision=s", f"{line(tags)} value=1 {TIME}"),
    "telnet": lambda tags: f"put m {TIME} 1 {' '.join(f'{key}={value}' for key, value in tags.items())}\n",
}


def tags_of(server):
    return [row["tags"] for row in server.sql("SELECT DISTINCT tags FROM samples")]


@pytest.mark.parametrize("said", SAYING)
def test_on_the_socket_a_sample_gets_the_host_and_the_rank_that_it_lacks(served, said):
    for _ in range(2):
        talk(served.ways["socket"], SAYING[said]({"a": "b"}), PMI_RANK="3")
    assert tags_of(served) == [{"a": "b", "host": "n7", "rank": "3"}]


@pytest.mark.parametrize("said", SAYING)
def test_what_a_sender_on_the_socket_says_itself_stays(served, said):
    talk(served.ways["socket"], SAYING[said]({"host": "mine", "rank": "r"}), PMI_RANK="3")
    assert tags_of(served) == [{"host": "mine", "rank": "r"}]


@pytest.mark.parametrize("said", SAYING)
def test_a_process_without_a_launcher_has_no_rank(served, said):
    talk(served.ways["socket"], SAYING[said]({"a": "b"}), SLURM_PROCID="0")
    assert tags_of(served) == [{"a": "b", "host": "n7"}]


@pytest.mark.parametrize("said", SAYING)
def test_over_tcp_samples_are_stored_as_they_were_sent(served, said):
    talk(served.ways["tcp"], SAYING[said]({"a": "b"}), PMI_RANK="3")
    talk(served.ways["tcp"], SAYING[said]({"host": "mine"}), PMI_RANK="3")
    assert sorted(map(str, tags_of(served))) == sorted(map(str, [{"a": "b"}, {"host": "mine"}]))


def test_the_same_bytes_of_two_ranks_are_two_series(served):
    for rank in ["0", "1", "0", "1"]:
        for said in ("put", "line protocol"):
            talk(served.ways["socket"], SAYING[said]({"a": "b"}), OMPI_COMM_WORLD_RANK=rank)
    assert sorted(tags["rank"] for tags in tags_of(served)) == ["0", "1"]


def test_a_point_with_as_many_tags_as_may_be_is_stored_without_more(served):
    many = {f"k{number}": "v" for number in range(64)}
    assert "204" in talk(served.ways["socket"], posted("/api/put", points(many)), PMI_RANK="3").split("\r\n")[0]
    one_less = {f"j{number}": "v" for number in range(63)}
    assert "204" in talk(served.ways["socket"], posted("/api/put", points(one_less)), PMI_RANK="3").split("\r\n")[0]
    found = {len(tags): tags for tags in tags_of(served)}
    assert list(found) == [64] and len(tags_of(served)) == 2
    assert [tags.get("host") for tags in tags_of(served) if "j1" in tags] == ["n7"]
    assert [tags.get("host") for tags in tags_of(served) if "k1" in tags] == [None]


@pytest.mark.parametrize("path", ["/api/put?as_sent", "/write?precision=s&as_sent"])
def test_a_request_may_say_that_it_is_to_be_stored_as_sent(served, path):
    body = points({"a": "b"}) if "put" in path else f"{line({'a': 'b'})} value=1 {TIME}"
    talk(served.ways["socket"], posted(path, body), PMI_RANK="3")
    assert tags_of(served) == [{"a": "b"}]


def test_telem_put_gets_its_rank_on_the_socket(served):
    for way in [{"TELEM_CONNECTION": served.file}, {"TELEM_SOCKET": served.ways["socket"]}]:
        done = subprocess.run([TELEM, "put", "m", "1"], env=environment(PMIX_RANK="5", **way), timeout=PATIENCE_S)
        assert done.returncode == 0
    assert tags_of(served) == [{"host": "n7", "rank": "5"}] or sorted(tags["rank"] for tags in tags_of(served)) == ["5", "5"]


LOG = """
import telem
telemetry = telem.Telemetry({arguments})
telemetry.add_data("loss", 0.5)
assert telemetry.flush(60)
"""


def test_the_python_client_under_two_ranks_says_itself_which_it_is(served):
    for arguments in ["", "process_tag=False"]:
        for rank in "01":
            more = environment(PMI_RANK=rank, TELEM_CONNECTION=served.file, PYTHONPATH=str(CLIENT))
            script = LOG.format(arguments=arguments)
            done = subprocess.run([sys.executable, "-c", script], env=more, capture_output=True, text=True, timeout=PATIENCE_S)
            assert done.returncode == 0, done.stderr
    found = sorted((tags.get("rank", "none"), tags["host"], "pid" in tags) for tags in tags_of(served))
    assert found == [("0", "n7", False), ("1", "n7", False), ("none", "n7", False)], "who left the rank out gets none"
