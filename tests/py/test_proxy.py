"""What a running Metric Proxy answered, asked of telem; and its pages in a real browser."""

import http.client
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from conftest import PATIENCE_S, Server

HERE = pathlib.Path(__file__).parent
CASES = HERE / "proxy_cases"
FIXTURES = HERE.parents[1] / "fixtures" / "proxy" / "cases.jsonl"
CASE_COUNT = 87


def free_port():
    """One that the system gives to nobody who asks for any: those it would soon give to another connection."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as ranges:
        first, last = map(int, ranges.read().split())
    for port in random.sample([port for port in range(10_000, 65_536) if not first <= port <= last], 100):
        with socket.socket() as probe:
            # What has ended lately does not count, as for telem itself.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


@pytest.fixture
def proxy(tmp_path, monkeypatch, request):
    """A fresh `telem proxy` that samples once a second, with stand-ins for what it may run: URL and socket."""
    monkeypatch.setenv("PATH", f"{CASES / 'stubs'}:{os.environ['PATH']}")
    port, path = free_port(), tmp_path / "s"
    server = Server("proxy", "-p", port, "-u", path, "-t", tmp_path / "data", *getattr(request, "param", []))
    try:
        yield f"http://127.0.0.1:{port}", path
    finally:
        server.stop()


def replay_cases(base, path, *more, checked=CASE_COUNT):
    """Replays all recorded cases, of which each that is checked must pass."""
    command = [sys.executable, CASES / "run_cases.py", base, path, "--stubs", "--verbose", "--cases", FIXTURES, *more]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=4 * PATIENCE_S, env=environment)
    lines = ran.stdout.splitlines()
    counts = {name: int(count) for name, count in re.findall(r"(pass|semantic|fail|skip) (\d+)", lines[-1] if lines else "")}
    bad = [line for line in lines if not line.startswith(("pass ", "skip "))]
    assert ran.returncode == 0, "\n".join(bad) + ran.stderr
    assert counts == {"pass": checked, "semantic": 0, "fail": 0, "skip": CASE_COUNT - checked}, "\n".join(bad)


def test_recorded_answers(proxy):
    base, path = proxy
    replay_cases(base, path)


@pytest.mark.parametrize("proxy", [["--proxy-exact"]], indirect=True)
def test_recorded_metrics_are_given_back_where_that_is_wanted(proxy):
    base, path = proxy
    replay_cases(base, path, "--exact", "--modes", "exposition", checked=2)


@pytest.mark.parametrize("where", ["head", "agent"])
def test_recorded_answers_of_a_node_that_hands_questions_on_to_its_head(server, tmp_path, monkeypatch, where):
    """Its clients are at the head, or at the node itself."""
    monkeypatch.setenv("PATH", f"{CASES / 'stubs'}:{os.environ['PATH']}")
    join = tmp_path / "join"
    head = server("serve", "--job", "7", "--node", "head", "--data", tmp_path / "head", "--join-file", join)
    agent = server("node", "--node", "n1", "--data", tmp_path / "n1", "--join", join)
    until(lambda: len(get(f"http://{agent.address}/api/nodes")) == 2)
    clients = {"head": head, "agent": agent}[where]
    replay_cases(f"http://{agent.address}", clients.socket, "--root", head.address)


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return json.load(answer)


def until(happened):
    """Waits for something that a server does on its own."""
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


# Everything about what is over, or was told to stay.
KEPT = [
    "/profiles",
    "/profiles/percmd",
    *(f"/profiles/get?jobid=size{size}" for size in (1, 2, 4, 8, 16)),
    "/profiles/get?jobid=livejob",
    "/profiles/points?jobid=size4",
    "/profiles/extrap?jobid=size4",
    "/model/get?jobid=size4",
    "/model/plot?jobid=size4&metric=scale_counter&start=1&end=5&step=1",
    "/alarms",
    "/alarms/list",
    "/topo",
    "/join/list",
    "/job?job=main",
    "/job?job=treejob",
    "/metrics",
    "/trace/list",
    "/trace/metrics?job=livejob",
    "/trace/metrics?job=main",
    "/trace/read?job=livejob&filter=live_gauge",
    "/trace/plot?jobid=livejob&filter=live_counter",
    "/trace/json?jobid=livejob",
]
# Recorded cases whose answer does not depend on clients that are connected.
KEPT_CASES = [
    "profiles",
    "profiles_percmd",
    "profiles_points",
    "profiles_extrap",
    "profiles_get_livejob",
    "trace_read_gauge_livejob",
    "model_get",
    "model_plot_get",
    "model_plot_post",
    "queue_list",
    "queue_model",
    "topo_tree6",
    "job_treejob_root",
    "join_list_prometheus",
    "metrics_prometheus_scraped",
]


# What the node is like, and what was declared and never counted.
FLEETING = ("proxy_", "live_zero", "live_gauge_unset")


def lasting(text):
    """An answer without what is true for a moment only, such as times, and without the order of lists."""
    if text.startswith("#"):
        return sorted(line for line in text.splitlines() if not any(name in line for name in FLEETING))
    try:
        return stripped(json.loads(text))
    except ValueError:
        return sorted(text.splitlines())


def stripped(value):
    if isinstance(value, dict):
        momentary = {"ts", "last_scrape", "lastwrite"} | ({"size"} if "lastwrite" in value else set())
        return {
            key: re.sub(r"= \d+ (\S+ COUNTER)", r"= \1", inner) if key == "pretty" else stripped(inner)
            for key, inner in value.items()
            if key not in momentary
        }
    if isinstance(value, list):
        is_own = lambda one: not (isinstance(one, dict) and str(one.get("name", "")).startswith(FLEETING))
        return sorted(map(stripped, filter(is_own, value)), key=lambda one: json.dumps(one, sort_keys=True))
    return value


def text_of(url):
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return f"status {error.code}: {error.read().decode()}"


def test_what_is_kept_is_answered_alike_after_a_kill(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{CASES / 'stubs'}:{os.environ['PATH']}")
    monkeypatch.syspath_prepend(CASES)
    import run_cases
    import setup

    port, path = free_port(), tmp_path / "s"
    start = lambda: Server("proxy", "-p", port, "-u", path, "-t", tmp_path / "data")
    base, first = f"http://127.0.0.1:{port}", start()
    try:
        setup.Live(base, str(path)).end(base)
        tree, exporter = setup.Tree(base), setup.Exporter()
        for call in (
            f"/join?to={exporter.address}&period=500",
            "/push?key=http_counter&doc=from%20http",
            "/set?key=http_counter&value=12.5",
            "/accumulate?key=http_counter&value=2",
            "/push?key=zero&doc=z",
        ):
            assert get(base + call)["success"], call
        for name, target, metric, operation, value in (
            ("raised", "main", "http_counter", ">", 10),
            ("calm", "main", "live_counter", "<", 10),
            ("tree", "treejob", "work", "=", 15),
        ):
            alarm = {"name": name, "target": target, "metric": metric, "operation": operation, "value": value}
            asked = urllib.request.Request(
                base + "/alarms/add", json.dumps(alarm).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
                assert json.load(answer)["success"], alarm
        until(lambda: [alarm["name"] for alarm in get(base + "/alarms")["treejob"]] == ["tree"])
        # What was counted a moment ago is stored at the next period.
        stored = "SELECT count(DISTINCT value) AS n FROM samples WHERE metric = 'live_counter'"
        until(lambda: first.sql(stored)[0]["n"] >= 8)
        before = {path: lasting(text_of(base + path)) for path in KEPT}
        assert not any(str(answer).startswith("['status") for answer in before.values()), before
    except BaseException:
        first.kill()
        raise
    first.kill()
    second = start()
    try:
        for kept, answer in before.items():
            # Children and exporters are asked anew.
            differs = lambda: lasting(text_of(base + kept)) != answer
            end = time.monotonic() + 30
            while differs() and time.monotonic() < end:
                time.sleep(0.05)
            assert lasting(text_of(base + kept)) == answer, kept
        host = socket.gethostname()
        names = {"Node": f"Node: {host}", **tree.names, f"{host}:{port}": "ROOT", f"127.0.0.1:{port}": "ROOT"}
        with open(FIXTURES) as lines:
            cases = {case["id"]: case for case in map(json.loads, lines)}
        for kept in KEPT_CASES:
            case = run_cases.placed(cases[kept], host, port, exporter.address)
            answer = run_cases.request(base, case, case["path"], case.get("body"))
            run_cases.check(case, *answer, names, False)
    finally:
        second.stop()


def answer_to(base, target, method="GET", **headers):
    """Status, type and text of the answer to a request whose target is sent as it stands."""
    place = base.removeprefix("http://")
    headers = {"Host": place, "Connection": "close", **headers}
    lines = [f"{method} {target} HTTP/1.1", *(f"{key}: {value}" for key, value in headers.items())]
    with socket.create_connection(place.split(":"), timeout=PATIENCE_S) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, answer.getheader("content-type"), answer.read().decode()


def refusal(operation):
    text = json.dumps({"operation": operation, "success": False}, separators=(",", ":"))
    return 400, "application/json; charset=utf-8", text


def test_what_makes_the_original_fail_is_answered(proxy):
    """Its defect 14: each of these is status 500 there."""
    base, _ = proxy
    missing = lambda name: refusal(f"Error parsing parameters: the parameter '{name}' is missing")
    for target, name in {
        "/push": "key",
        "/push?doc=d": "key",
        "/set": "key",
        "/set?value=1": "key",
        "/set?key=k": "value",
        "/accumulate?value=1": "key",
        "/accumulate?key=k": "value",
    }.items():
        assert answer_to(base, target) == missing(name), target
    for method, target in [("GET", "*"), ("OPTIONS", "*"), ("GET", "job"), ("GET", "//job")]:
        assert answer_to(base, target, method) == (404, None, ""), (method, target)
    status, kind, text = answer_to(base, f"{base}/job/list")
    assert (status, kind) == (200, "application/json; charset=utf-8")
    assert [job["jobid"] for job in json.loads(text)][0] == "main"
    assert answer_to(base, f"{base}/push") == missing("key")


def test_the_size_of_a_trace_and_its_rhythms_are_answered_as_by_the_successor(proxy):
    base, path = proxy
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        for message in (
            {"JobDesc": {"jobid": "j", "command": "c", "size": 1, "nodelist": "", "partition": "", "cluster": "",
                         "run_dir": "", "start_time": 0, "end_time": 0}},
            {"Desc": {"name": "c", "doc": "", "ctype": {"Counter": {"ts": 0, "value": 0.0}}}},
            {"Value": {"name": "c", "value": {"Counter": {"ts": 1, "value": 2.0}}}},
        ):
            client.sendall(json.dumps(message).encode() + b"\0")
        until(lambda: answer_to(base, "/trace/size?jobid=j")[0] == 200 and get(f"{base}/trace/size?jobid=j")[0] > 0)
        # Bytes, and how many they may be; both are whole numbers.
        size, most = json.loads(answer_to(base, "/trace/size/?jobid=j")[2])
        assert type(size) is int and 0 < size < most == 2**53 - 1
        listed = lambda: next(trace["size"] for trace in get(f"{base}/trace/list") if trace["desc"]["jobid"] == "j")
        assert listed() >= size
    assert answer_to(base, "/trace/size") == refusal("No job GET parameter passed")
    assert answer_to(base, "/trace/size?jobid=no") == refusal("No such jobid no")
    for call in ("/trace/ftio", "/model/ftio"):
        assert answer_to(base, call) == refusal("A GET parameter for a reference jobid must be passed")
        assert answer_to(base, f"{call}?jobid=no") == refusal("No such jobid")


def test_names_of_the_originals_manual_and_a_slash_at_the_end_lead_to_the_same_answers(proxy, monkeypatch):
    monkeypatch.syspath_prepend(CASES)
    import setup

    base, path = proxy
    client = setup.Client(str(path), setup.desc("j", "./app", 2))
    client.counter("c", "what was done")
    client.add("c", 2.5)
    client.gauge("g", "how it is")
    client.set("g", 7)
    until(lambda: {"c", "g"} <= {one["name"] for one in get(f"{base}/job?job=main")["counters"]})
    for job in ("main", "j"):
        told = lasting(text_of(f"{base}/job/?job={job}"))
        assert told == lasting(text_of(f"{base}/job?job={job}"))
        assert (told["desc"]["jobid"], [one["name"] for one in told["counters"]]) == (job, ["c", "g"])
    assert answer_to(base, "/job/?job=no") == refusal("No such Job ID")
    client.close()
    until(lambda: answer_to(base, "/profiles/get?jobid=j")[0] == 200)
    profile = answer_to(base, "/get?jobid=j")
    assert profile == answer_to(base, "/profiles/get?jobid=j")
    assert {"c", "g", "walltime"} <= {one["name"] for one in json.loads(profile[2])["counters"]}
    for target, others in {
        "/profiles/get?jobid=j": ["/get/?jobid=j", "/profiles/get/?jobid=j"],
        "/profiles/get?jobid=no": ["/get?jobid=no"],
        "/profiles/get": ["/get"],
        "/profiles/percmd": ["/percmd", "/percmd/", "/profiles/percmd/"],
        "/job/list": ["/joblist", "/joblist/", "/job/list/"],
    }.items():
        for other in others:
            assert answer_to(base, other) == answer_to(base, target), other
    assert answer_to(base, "/get?jobid=no") == refusal("Failed to get no")
    assert answer_to(base, "/get") == refusal("A GET parameter jobid must be passed")


# As Prometheus asks.
OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"


def test_metrics_are_open_metrics_for_who_accepts_that(proxy):
    base, _ = proxy
    for call in (
        "/push?key=steps_total&doc=Steps%20%22done%22",
        "/accumulate?key=steps_total&value=3",
        "/push?key=plain{a=%22b%22}&doc=p",
    ):
        assert get(base + call)["success"], call
    status, kind, text = answer_to(base, "/metrics", Accept=OPEN_METRICS)
    assert (status, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert text.endswith("\n# EOF\n") and text.count("# EOF") == 1
    assert '# HELP steps Steps \\"done\\"\n# TYPE steps counter\nsteps_total 3\n' in text
    assert '# TYPE plain unknown\nplain{a="b"} 0\n' in text
    # Families stand together, and a counter's samples end as its type wants.
    family, kinds = None, {}
    for line in text.splitlines()[:-1]:
        assert line, "no empty lines"
        if line.startswith("# HELP "):
            family = line.split(" ")[2]
            assert family not in kinds, f"{family} stands there twice"
        elif line.startswith("# TYPE "):
            _, _, named, kinds[named] = line.split(" ")
            assert named == family
        else:
            name = re.match(r"[a-zA-Z_:][a-zA-Z0-9_:]*", line)[0]
            assert name == family + ("_total" if kinds[family] == "counter" else ""), line
            float(line.rsplit(" ", 1)[1])
    assert set(kinds.values()) == {"counter", "gauge", "unknown"}
    for accept in ({}, {"Accept": "text/plain"}, {"Accept": "*/*"}):
        status, kind, text = answer_to(base, "/metrics", **accept)
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "# EOF" not in text and '# TYPE steps_total counter\nsteps_total 3\n' in text
    assert answer_to(base, "/metrics?exact=true", Accept=OPEN_METRICS)[1] == "text/plain; charset=utf-8"
