"""`telem put`: samples from a shell, into the real server."""

import json
import os
import pathlib
import signal
import subprocess

import pytest
from conftest import PATIENCE_S, TELEM


@pytest.fixture
def served(serve, tmp_path):
    server = serve(tmp_path / "db")
    server.file = tmp_path / "db" / "connection.json"
    server.known = json.loads(server.file.read_text())
    return server


def put(*arguments, lines=None, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TELEM_")}
    return subprocess.run(
        [TELEM, "put", *map(str, arguments)],
        input=lines,
        stdin=subprocess.DEVNULL if lines is None else None,
        env={**clean, **environment},
        capture_output=True,
        text=isinstance(lines, str) or lines is None,
        timeout=PATIENCE_S,
    )


def rows(server, what="metric, tags, value, value_int"):
    return server.sql(f"SELECT {what} FROM samples ORDER BY metric, ts, value")


def test_one_sample_goes_to_the_server_of_the_environment(served):
    ways = [{"TELEM_CONNECTION": str(served.file)}, {"TELEM_SOCKET": served.known["socket"]}, {"TELEM_URL": served.known["url"]}]
    for number, way in enumerate(ways):
        done = put("jobs.waiting", number, f"queue=q{number}", **way)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert put("jobs.waiting", 3, "queue=q3", "--url", served.known["url"]).returncode == 0
    node = served.known["node"]
    assert [(row["tags"], row["value_int"]) for row in rows(served)] == [
        ({"host": node, "queue": f"q{number}"}, number) for number in range(4)
    ]


def test_values_and_times_are_stored_as_written(served):
    for value, time in [("-4.5", "2026-07-27T12:00:00.000001Z"), ("9007199254740993", "1785153601"), ("1e3", "1785153602000ms"), ("7", "1785153603000000us")]:
        assert put("m", value, "host=h", "--time", time, TELEM_CONNECTION=str(served.file)).returncode == 0
    assert put("--time", "5m-ago", "m", "NaN", TELEM_CONNECTION=str(served.file)).returncode == 0
    found = rows(served, "value, value_int, ts")
    table = {row["ts"]: row["value_int"] if row["value_int"] is not None else row["value"] for row in found}
    assert table["2026-07-27T12:00:00.000001Z"] == -4.5
    assert table["2026-07-27T12:00:01Z"] == 9007199254740993
    assert table["2026-07-27T12:00:02Z"] == 1000.0
    assert table["2026-07-27T12:00:03Z"] == 7
    assert len(found) == 5
    age = served.sql("SELECT count(*) AS n FROM samples WHERE ts BETWEEN now() - INTERVAL '6 minutes' AND now() - INTERVAL '4 minutes'")
    assert age == [{"n": 1}]


@pytest.mark.parametrize(
    "arguments, code, told",
    [
        (["m"], 2, "'m' has no value"),
        ([], 2, "required"),
        (["m", "1", "run=1", "run=2"], 2, "tag 'run' is given twice, as '1' and as '2'"),
        (["m", "1", "tag"], 2, "'tag' is not a tag; write TAG=VALUE"),
        (["m", "1", "--time", "noon"], 2, "'noon' is not a time"),
        (["m", "abc"], 1, "refused: Unable to parse value to a number"),
        (["a:b", "1"], 1, "illegal character: :"),
        (["m", "1", "k="], 1, "Invalid tag value with key [k]: empty string"),
        (["m", "1", "--time", "2999-01-01T00:00:00Z"], 1, "ahead of this machine's clock"),
    ],
)
def test_what_is_wrong_is_said_and_the_exit_code_tells_the_kind(served, arguments, code, told):
    done = put(*arguments, TELEM_CONNECTION=str(served.file))
    assert done.returncode == code and told in done.stderr, done.stderr
    assert rows(served) == []


def test_every_number_is_a_value(served):
    for value in ["-inf", "inf", "NaN", "-4.5", "-0", "1e-3"]:
        assert put("m", value, "a=b", TELEM_CONNECTION=str(served.file)).returncode == 0
    text = served.post("/api/sql?format=csv", "SELECT value FROM m ORDER BY ts")
    assert text.split()[1:] == ["-inf", "inf", "NaN", "-4.5", "0.0", "0.001"]


def test_one_time_for_many_lines_keeps_those_of_a_series_apart(served):
    lines = "a 1\nb 1\na 2\na 3 x=1\na 4\n"
    assert put("-", "--time", "1700000000", lines=lines, TELEM_CONNECTION=str(served.file)).returncode == 0
    found = served.sql("SELECT metric, value, ts FROM samples ORDER BY value, metric")
    assert [(row["metric"], row["value"], row["ts"]) for row in found] == [
        ("a", 1, "2023-11-14T22:13:20Z"),
        ("b", 1, "2023-11-14T22:13:20Z"),
        ("a", 2, "2023-11-14T22:13:20.000001Z"),
        ("a", 3, "2023-11-14T22:13:20Z"),
        ("a", 4, "2023-11-14T22:13:20.000002Z"),
    ]


def test_a_server_that_hangs_is_not_waited_for_long(served):
    """A job script must go on: the other commands wait for long answers, this one for a short one."""
    served.process.send_signal(signal.SIGSTOP)
    try:
        done = put("m", 1, TELEM_CONNECTION=str(served.file))
    finally:
        served.process.send_signal(signal.SIGCONT)
    assert done.returncode == 1 and "did not answer within 20 s" in done.stderr


def test_lines_wait_for_a_server_that_is_started_again(serve, tmp_path):
    data = tmp_path / "db"
    server, file = serve(data), data / "connection.json"
    process = subprocess.Popen(
        [TELEM, "put", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TELEM_CONNECTION": str(file)},
        text=True,
    )
    # Its answer waits until everything before it is on disk.
    server.put([{"metric": "m", "timestamp": 1, "value": 1, "tags": {"a": "b"}}], "?sync")
    server.kill()
    process.stdin.write("".join(f"many {n}\n" for n in range(7_000)))
    process.stdin.flush()
    assert "is the server running?; waiting for it, up to 60 s" in process.stderr.readline()
    server = serve(data)
    _, told = process.communicate("last 1\n", timeout=PATIENCE_S)
    assert (process.returncode, told) == (0, "")
    assert server.sql("SELECT count(*) AS n FROM many") == [{"n": 7_000}]


def test_without_a_server_it_fails_and_says_what_to_do(tmp_path):
    done = put("m", 1)
    assert done.returncode == 1 and "TELEM_CONNECTION, TELEM_SOCKET and TELEM_URL are not set" in done.stderr
    done = put("m", 1, TELEM_CONNECTION=str(tmp_path / "gone.json"))
    assert done.returncode == 1 and "gone.json, which cannot be read: no telem runs" in done.stderr
    (tmp_path / "other.txt").write_text("root:x:0:0")
    done = put("m", 1, TELEM_CONNECTION=str(tmp_path / "other.txt"))
    assert done.returncode == 1 and "other.txt, which is not a connection file" in done.stderr
    done = put("m", 1, TELEM_SOCKET=str(tmp_path / "gone.sock"))
    assert done.returncode == 1 and "is the server running?" in done.stderr


def test_lines_are_stored_and_each_bad_one_is_named_with_its_number(served):
    lines = """# a comment, and an empty line

loss 0.5 rank=0
loss
loss abc rank=0
put sys.cpu.user 1356998400 42.5 host=web01 cpu=0
put sys.cpu.user 1356998400500 43 host=web01 cpu=0
loss 0.25 rank
  loss   0.25\trank=0
bad:name 1
"""
    done = put("-", lines=lines, TELEM_CONNECTION=str(served.file))
    assert done.returncode == 1
    told = done.stderr.splitlines()
    assert sorted(told[:-1]) == [
        'line 10: bad:name 1: Invalid metric name ("bad:name"): illegal character: :',
        "line 4: 'loss' has no value; write METRIC VALUE [TAG=VALUE...]",
        "line 5: loss abc: Unable to parse value to a number",
        "line 8: 'rank' is not a tag; write TAG=VALUE",
    ]
    assert told[-1].endswith("4 lines were refused, 4 samples were stored")
    assert [(row["metric"], row["value"]) for row in rows(served)] == [
        ("loss", 0.5), ("loss", 0.25), ("sys.cpu.user", 42.5), ("sys.cpu.user", 43.0),
    ]
    cpu = rows(served, "metric, ts, tags")[-1]
    assert (cpu["ts"], cpu["tags"]) == ("2013-01-01T00:00:00.500Z", {"cpu": "0", "host": "web01"})


def test_many_lines_go_in_bounded_batches_and_none_overwrites_another(served):
    done = put("-", lines="".join(f"many {n} part={n % 3}\n" for n in range(23_000)), TELEM_CONNECTION=str(served.file))
    assert (done.returncode, done.stderr) == (0, "")
    assert served.sql("SELECT count(*) AS n, sum(value_int) AS total FROM many") == [{"n": 23_000, "total": sum(range(23_000))}]


def test_bytes_that_are_no_text_and_lines_that_are_too_long_cost_themselves_only(served):
    lines = b"a 1\n\xff\xfe 1\n" + b"x" * 100_000 + b" 1\nb 2"
    done = put("-", lines=lines, TELEM_CONNECTION=str(served.file))
    assert done.returncode == 1
    assert b"line 2: no UTF-8" in done.stderr and b"line 3: 100003 bytes" in done.stderr
    assert [row["metric"] for row in rows(served)] == ["a", "b"]


def test_lines_arrive_while_their_writer_still_writes(served):
    process = subprocess.Popen(
        [TELEM, "put", "-"], stdin=subprocess.PIPE, env={**os.environ, "TELEM_CONNECTION": str(served.file)}, text=True
    )
    process.stdin.write("early 1\n")
    process.stdin.flush()
    # The test's own limit of time ends this where the line never arrives.
    while not rows(served):
        assert process.poll() is None
    process.stdin.write("late 2\n")
    process.stdin.close()
    assert process.wait(PATIENCE_S) == 0
    assert [row["metric"] for row in rows(served)] == ["early", "late"]


def test_a_server_that_goes_away_is_told_with_the_line(served):
    process = subprocess.Popen(
        [TELEM, "put", "-", "--wait", "1s"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TELEM_CONNECTION": str(served.file)},
        text=True,
    )
    process.stdin.write("first 1\n")
    process.stdin.flush()
    while not rows(served):
        assert process.poll() is None
    served.kill()
    _, told = process.communicate("second 2\n", timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "1 sample was stored, nothing from line 2 on" in told
