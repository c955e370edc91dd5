"""Metric Proxy's own client library and launcher, where they are installed, against its server and against telem.

`TELEM_ORIGINAL_PROXY=PREFIX/bin/proxy_v2` names its server; `proxy_run` is beside it, and the library in `PREFIX/lib`.
"""

import os
import pathlib
import socket
import subprocess
import threading
import urllib.error

import pytest
from conftest import PATIENCE_S, Server
from test_proxy import free_port, get, until

ORIGINAL = pathlib.Path(os.environ.get("TELEM_ORIGINAL_PROXY", "/nowhere"))
PREFIX = ORIGINAL.parent.parent
pytestmark = pytest.mark.skipif(not ORIGINAL.exists(), reason="TELEM_ORIGINAL_PROXY names no server of Metric Proxy")

INCREMENTS = 2_000
PROCESSES = 16
PROGRAM = """
#include <unistd.h>
struct MetricProxyClient; struct MetricProxyValue;
struct MetricProxyClient *metric_proxy_init(void);
int metric_proxy_release(struct MetricProxyClient *);
struct MetricProxyValue *metric_proxy_counter_new(struct MetricProxyClient *, const char *, const char *);
struct MetricProxyValue *metric_proxy_gauge_new(struct MetricProxyClient *, const char *, const char *);
int metric_proxy_counter_inc(struct MetricProxyValue *, double);
int metric_proxy_gauge_set(struct MetricProxyValue *, double);

int main(void)
{
    struct MetricProxyClient *client = metric_proxy_init();
    struct MetricProxyValue *hits = metric_proxy_counter_new(client, "hits_total{rank=\\"0\\",op=\\"read\\"}", "\\"hits\\"");
    struct MetricProxyValue *parts = metric_proxy_counter_new(client, "parts", "a quarter each");
    struct MetricProxyValue *temp = metric_proxy_gauge_new(client, "temp", "the last one counts");
    metric_proxy_counter_new(client, "never", "has no data");
    for (int at = 0; at < INCREMENTS; at++) {
        metric_proxy_counter_inc(hits, 1);
        metric_proxy_counter_inc(parts, 0.25);
        metric_proxy_gauge_set(temp, at * 1.5);
        if (at % 500 == 0)
            usleep(100000);
    }
    return metric_proxy_release(client);
}
"""


class Proxies:
    """Both servers, each with its HTTP address and its socket."""

    def __init__(self, folder):
        self.node = f"Node: {socket.gethostname()}"
        self.places, self.running = {}, []
        for name in ("original", "telem"):
            port, path, data = free_port(), folder / name, folder / f"{name}.d"
            data.mkdir()
            options = ["-p", port, "-u", path, "-t", data]
            if name == "telem":
                self.running.append(Server("proxy", *options))
            else:
                words = list(map(str, [ORIGINAL, *options]))
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
                self.running.append(subprocess.Popen(words, env={**os.environ, "RUST_LOG": "error"}, **quiet))
            self.places[name] = (f"http://127.0.0.1:{port}", path)
        for base, _ in self.places.values():
            until(lambda: asked(f"{base}/job/list"))

    def stop(self):
        for one in self.running:
            if isinstance(one, Server):
                one.stop()
            else:
                one.kill()
                one.wait()


def asked(url):
    """The answer; None while there is none."""
    try:
        return get(url)
    except (urllib.error.URLError, ConnectionError):
        return None


@pytest.fixture
def proxies(tmp_path):
    both = Proxies(tmp_path)
    yield both
    both.stop()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program that is linked against the original's library."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "program.c").write_text(PROGRAM)
    library = [f"-L{PREFIX / 'lib'}", "-lproxyclient", f"-Wl,-rpath,{PREFIX / 'lib'}"]
    subprocess.run(["cc", f"-DINCREMENTS={INCREMENTS}", folder / "program.c", *library, "-o", folder / "program"], check=True)
    return folder / "program"


def launch(program, job, path):
    """Below the original's launcher."""
    command = [PREFIX / "bin" / "proxy_run", "-j", job, "-u", path, "-e", "finstrument", "--", program]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr


def counted(profile):
    """What clients counted, without times."""
    strip = lambda ctype: {kind: {key: value for key, value in told.items() if key != "ts"} for kind, told in ctype.items()}
    own = lambda name: not name.startswith("proxy_") and name != "walltime"
    return {one["name"]: (one["doc"], strip(one["ctype"])) for one in profile["counters"] if own(one["name"])}


def test_one_program_has_the_same_profile_at_both(proxies, program):
    profiles = {}
    for name, (base, path) in proxies.places.items():
        launch(program, "same", path)
        until(lambda: asked(f"{base}/profiles/get?jobid=same"))
        profiles[name] = get(f"{base}/profiles/get?jobid=same")
    original, telem = (counted(profiles[name]) for name in ("original", "telem"))
    assert original == telem
    hits = telem['hits_total{rank="0",op="read"}']
    assert hits == ('"hits"', {"Counter": {"value": float(INCREMENTS)}}) and "never" not in telem
    times = ("start_time", "end_time")
    descriptions = [{key: value for key, value in profiles[name]["desc"].items() if key not in times} for name in profiles]
    assert descriptions[0] == descriptions[1]


def test_sixteen_processes_of_one_job_lose_nothing(proxies, program):
    base, path = proxies.places["telem"]
    # The job stays live as long as somebody of it is there.
    launched = [threading.Thread(target=launch, args=(program, "many", path)) for _ in range(PROCESSES)]
    for one in launched:
        one.start()
    for one in launched:
        one.join()
    until(lambda: asked(f"{base}/profiles/get?jobid=many"))
    value = lambda told: counted(told)['hits_total{rank="0",op="read"}'][1]["Counter"]["value"]
    all_of_it = float(PROCESSES * INCREMENTS)
    until(lambda: value(get(f"{base}/profiles/get?jobid=many")) == all_of_it)
    for scope in ("main", proxies.node.replace(" ", "%20")):
        assert value(get(f"{base}/job?job={scope}")) == all_of_it
