"""Trees of Metric Proxy itself and telem: an original above telem, and an original below it, while one dies and returns."""

import os
import signal
import socket

import pytest
from conftest import PATIENCE_S
from original_proxy import Original, Telem, await_value, asked, needs_original, value
from test_proxy import CASES, get, until

pytestmark = needs_original
PERIOD_MS = 50
LIVES = 3
LOOKS_OF_A_LIFE = 100


@pytest.fixture
def started():
    """Starts servers, and ends those that a test leaves behind."""
    running = []

    def start(kind, *arguments):
        running.append(kind(*arguments))
        return running[-1]

    yield start
    for one in running:
        one.kill() if isinstance(one, Telem) else one.stop()


@pytest.fixture
def client(monkeypatch):
    """Connects to a server's socket, with a job that counts `work`."""
    monkeypatch.syspath_prepend(CASES)
    import setup

    def connected(path):
        one = setup.Client(str(path), setup.desc("tree", "./tree", 1))
        one.counter("work", "what was done")
        return one

    return connected


def check(root, child, expected):
    """Both have the same, in everything and in the job."""
    for scope in ("main", "tree"):
        await_value(child.base, scope, "work", expected)
        await_value(root.base, scope, "work", expected)


def polled(root):
    """The addresses of children that it polls."""
    return [one["target_url"] for one in get(f"{root.base}/join/list") if one["ttype"] == "Proxy"]


def test_an_original_root_has_what_telem_below_it_counts_and_again_after_it_was_killed(tmp_path, started, client):
    root = started(Original, tmp_path)
    child = started(Telem, tmp_path, "-r", f"127.0.0.1:{root.port}@{PERIOD_MS}")
    rank = client(child.path)
    rank.add("work", 3)
    # Below an original child the first value of a counter counts twice.
    check(root, child, 3)
    for amount in (4, 5.5, 100):
        rank.add("work", amount)
    check(root, child, 112.5)
    rank.counter("late", "comes late, and with a value")
    rank.add("late", 7)
    await_value(root.base, "main", "late", 7)
    assert [below for _, below in get(f"{root.base}/topo")] == [f"127.0.0.1:{child.port}"]

    root.stop()
    rank.add("work", 10)
    await_value(child.base, "main", "work", 122.5)
    # It remembers nothing, and telem joins it again by itself.
    root.start()
    check(root, child, 122.5)
    rank.add("work", 1.5)
    check(root, child, 124)
    rank.close()
    until(lambda: asked(f"{child.base}/profiles/get?jobid=tree"))
    until(lambda: asked(f"{root.base}/profiles/get?jobid=tree"))


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_living_original_root_counts_what_telem_below_it_counts_once_while_that_ends_and_returns(
        tmp_path, started, client, end):
    root = started(Original, tmp_path)
    child = started(Telem, tmp_path, "-r", f"127.0.0.1:{root.port}@{PERIOD_MS}")
    sent = 0
    # From the third life on an original names the child itself as its parent, which asks it for a place each time.
    for life in range(LIVES + 1):
        rank = client(child.path)
        for amount in (13, 0.5, 100):
            rank.add("work", amount + life)
            sent += amount + life
        rank.counter(f"of life {life}", "what there was not before")
        rank.add(f"of life {life}", 7)
        check(root, child, sent)
        await_value(root.base, "main", f"of life {life}", 7)
        assert len(polled(root)) == 1
        getattr(child, end)()
        rank.close()
        if life < LIVES:
            child.start()
    assert [value(root.base, "main", f"of life {life}") for life in range(LIVES + 1)] == [7] * (LIVES + 1)
    assert get(f"{root.base}/topo") == [[get(f"{root.base}/topo")[0][0], f"127.0.0.1:{child.port}"]]


def test_what_telem_counts_after_the_last_poll_before_it_is_told_to_stop_is_at_an_original_root(tmp_path, started, client):
    root = started(Original, tmp_path)
    child = started(Telem, tmp_path, "-r", f"127.0.0.1:{root.port}@1000")
    rank = client(child.path)
    rank.add("work", 3)
    check(root, child, 3)
    rank.add("work", 4)
    rank.counter("last", "was never polled before")
    rank.add("last", 7)
    await_value(child.base, "main", "last", 7)
    child.stop()
    assert [value(root.base, "main", name) for name in ("work", "last")] == [7, 7]


def test_an_original_root_that_drops_a_living_telem_gets_what_it_missed_once_it_polls_again(tmp_path, started, client):
    root = started(Original, tmp_path)
    child = started(Telem, tmp_path, "-r", f"127.0.0.1:{root.port}@{PERIOD_MS}")
    rank = client(child.path)
    rank.add("work", 13)
    check(root, child, 13)
    # It hangs for longer than a poll waits.
    os.kill(child.server.process.pid, signal.SIGSTOP)
    rank.add("work", 100)
    until(lambda: not polled(root))
    os.kill(child.server.process.pid, signal.SIGCONT)
    rank.add("work", 1)
    check(root, child, 114)


def own_address():
    """An address of this machine that is not loopback; None where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Sends nothing: the kernel only chooses a route, here to a network for documentation.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return None if probe.getsockname()[0].startswith("127.") else probe.getsockname()[0]


def looks(original):
    """How often it looked at its node since it was started."""
    return sum(one["ctype"]["Counter"]["value"] for one in get(f"{original.base}/job?job=main")["counters"]
               if one["name"].startswith("proxy_scrape_total"))


def below(place):
    """Options of an original child."""
    return ["-S", PERIOD_MS, "-r", f"{place}@{PERIOD_MS}"]


def check_a_child_that_dies(parent, child, client):
    """What was sent to a child is at its parent once, however often the child begins anew, with more than before."""
    sent = 0
    for life in range(LIVES):
        rank = client(child.path)
        for amount in (7, 0.25, 30):
            rank.add("work", amount + life)
            sent += amount + life
        for scope in ("main", "tree"):
            await_value(parent.base, scope, "work", sent)
        assert [one["period"] for one in get(f"{parent.base}/join/list") if one["ttype"] == "Proxy"] == [PERIOD_MS]
        # That it looked less often than before shows that it was started anew.
        until(lambda: looks(child) > LOOKS_OF_A_LIFE)
        child.stop()
        rank.close()
        if life + 1 < LIVES:
            child.start()
    assert value(parent.base, "main", "work") == sent


def test_what_is_sent_to_an_original_child_is_at_telem_while_it_dies_and_returns(tmp_path, started, client):
    parent = started(Telem, tmp_path)
    child = started(Original, tmp_path, *below(f"127.0.0.1:{parent.port}"))
    check_a_child_that_dies(parent, child, client)


def test_an_original_child_shows_the_token_in_its_path(tmp_path, started, client):
    parent = started(Telem, tmp_path, "--require-token")
    assert asked(f"{parent.base}/job/list") is None
    place = f"127.0.0.1:{parent.port}/t/{parent.token()}"
    parent.base = f"http://{place}"
    child = started(Original, tmp_path, *below(place))
    check_a_child_that_dies(parent, child, client)


def test_an_original_child_joins_beyond_loopback_with_the_token_alone(tmp_path, started, client):
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    parent = started(Telem, tmp_path, "--listen", "0.0.0.0:0", "--proxy-plain")
    place = f"{address}:{parent.server.address.rsplit(':')[-1]}"
    # It asks six times, two seconds apart, and ends.
    assert started(Original, tmp_path, *below(place)).process.wait(PATIENCE_S) == 1
    assert all("/job" not in one["target_url"] for one in get(f"{parent.base}/join/list"))
    child = started(Original, tmp_path, *below(f"{place}/t/{parent.token()}"))
    check_a_child_that_dies(parent, child, client)
