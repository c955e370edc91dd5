"""Trees of Metric Proxy itself and telem: an original above telem, and an original below it, while one dies and returns."""

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


def test_an_original_root_has_what_telem_below_it_counts_and_again_after_it_was_killed(tmp_path, started, client):
    root = started(Original, tmp_path)
    child = started(Telem, tmp_path, "-r", f"127.0.0.1:{root.port}@{PERIOD_MS}")
    rank = client(child.path)
    rank.add("work", 3)
    # An original counts the first value that it sees of a counter twice, also of a child of its own kind.
    for scope in ("main", "tree"):
        await_value(root.base, scope, "work", 6)
    for amount in (4, 5.5, 100):
        rank.add("work", amount)
    for scope in ("main", "tree"):
        await_value(root.base, scope, "work", 6 + 109.5)
        await_value(child.base, scope, "work", 112.5)
    assert [below for _, below in get(f"{root.base}/topo")] == [f"127.0.0.1:{child.port}"]

    root.stop()
    rank.add("work", 10)
    await_value(child.base, "main", "work", 122.5)
    # It remembers nothing, and telem joins it again by itself.
    root.start()
    await_value(root.base, "main", "work", 2 * 122.5)
    rank.add("work", 1.5)
    for scope in ("main", "tree"):
        await_value(root.base, scope, "work", 2 * 122.5 + 1.5)
        await_value(child.base, scope, "work", 124)
    rank.close()
    until(lambda: asked(f"{child.base}/profiles/get?jobid=tree"))
    until(lambda: asked(f"{root.base}/profiles/get?jobid=tree"))


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
