"""What a running Metric Proxy answered, asked of telem; and its pages in a real browser."""

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
