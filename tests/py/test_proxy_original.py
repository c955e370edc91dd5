"""Metric Proxy's own client library and launcher, where they are installed, against its server and against telem."""

import os
import subprocess
import threading

import pytest
from original_proxy import Original, PREFIX, counted, described, launch, needs_original, profile_of, proxies  # noqa: F401
from test_proxy import CASES, get, replay_cases, until

pytestmark = needs_original

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


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program that is linked against the original's library."""
    folder = tmp_path_factory.mktemp("original")
    (folder / "program.c").write_text(PROGRAM)
    library = [f"-L{PREFIX / 'lib'}", "-lproxyclient", f"-Wl,-rpath,{PREFIX / 'lib'}"]
    subprocess.run(["cc", f"-DINCREMENTS={INCREMENTS}", folder / "program.c", *library, "-o", folder / "program"], check=True)
    return folder / "program"


def test_one_program_has_the_same_profile_at_both(proxies, program):
    profiles = {}
    for name, (base, path) in proxies.places.items():
        launch([program], "same", path, "finstrument")
        profiles[name] = profile_of(base, "same")
    original, telem = (counted(profiles[name]) for name in ("original", "telem"))
    assert original == telem
    hits = telem['hits_total{rank="0",op="read"}']
    assert hits == ('"hits"', {"Counter": {"value": float(INCREMENTS)}}) and "never" not in telem
    assert described(profiles["original"]) == described(profiles["telem"])


def test_sixteen_processes_of_one_job_lose_nothing(proxies, program):
    base, path = proxies.places["telem"]
    # The job stays live as long as somebody of it is there.
    launched = [threading.Thread(target=launch, args=([program], "many", path, "finstrument")) for _ in range(PROCESSES)]
    for one in launched:
        one.start()
    for one in launched:
        one.join()
    value = lambda told: counted(told)['hits_total{rank="0",op="read"}'][1]["Counter"]["value"]
    all_of_it = float(PROCESSES * INCREMENTS)
    until(lambda: value(profile_of(base, "many")) == all_of_it)
    for scope in ("main", proxies.node.replace(" ", "%20")):
        assert value(get(f"{base}/job?job={scope}")) == all_of_it


def test_recorded_answers_are_those_of_the_original(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{CASES / 'stubs'}:{os.environ['PATH']}")
    original = Original(tmp_path)
    try:
        replay_cases(original.base, original.path, "--exact")
    finally:
        original.stop()
