"""Metric Proxy's own client library and launcher, where they are installed, against its server and against telem."""

import os
import shutil
import subprocess
import threading

import pytest
from conftest import TELEM
from original_proxy import (  # noqa: F401
    PERIOD_MS,
    PREFIX,
    Original,
    await_value,
    build,
    counted,
    described,
    launch,
    needs_original,
    profile_of,
    proxies,
    ran,
)
from test_proxy import CASES, get, replay_cases, until
from test_proxy_exporters import ALLOWED, PROXY

pytestmark = needs_original

INCREMENTS = 2_000
PROCESSES = 16
RANKS = 4
HITS = 'hits_total{rank="0",op="read"}'
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
    # So that LD_LIBRARY_PATH names another library of that name.
    library = [f"-L{PREFIX / 'lib'}", "-lproxyclient", "-Wl,--enable-new-dtags", f"-Wl,-rpath,{PREFIX / 'lib'}"]
    subprocess.run(["cc", f"-DINCREMENTS={INCREMENTS}", folder / "program.c", *library, "-o", folder / "program"], check=True)
    return folder / "program"


@pytest.fixture(scope="module")
def own_library(tmp_path_factory, program):
    """Telem's own library: the environment in which the program loads it."""
    folder = tmp_path_factory.mktemp("own")
    build("make", "-s", "-C", PROXY, f"BUILD={folder}", folder / "libproxyclient.so")
    loads_it = {"LD_LIBRARY_PATH": str(folder)}
    assert f"libproxyclient.so => {folder}" in ran(["ldd", program], **loads_it).stdout
    return loads_it


def test_one_program_has_the_same_profile_at_both(proxies, program):
    profiles = {}
    for name, (base, path) in proxies.places.items():
        launch([program], "same", path, "finstrument")
        profiles[name] = profile_of(base, "same")
    original, telem = (counted(profiles[name]) for name in ("original", "telem"))
    assert original == telem
    hits = telem[HITS]
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
    value = lambda told: counted(told)[HITS][1]["Counter"]["value"]
    all_of_it = float(PROCESSES * INCREMENTS)
    until(lambda: value(profile_of(base, "many")) == all_of_it)
    for scope in ("main", proxies.node.replace(" ", "%20")):
        assert value(get(f"{base}/job?job={scope}")) == all_of_it


def named(base):
    """The profile of the only job that ended."""
    until(lambda: get(f"{base}/profiles"))
    (desc,) = get(f"{base}/profiles")
    return profile_of(base, desc["jobid"])


SLURM = {"SLURM_JOBID": "77", "SLURM_NTASKS": "16", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_PARTITION": "main",
         "SLURM_CLUSTER_NAME": 'the "cluster"'}
PMIX = {"PMIX_ID": "prterun-host-1@1.0", "PMI_SIZE": "8"}
MPI = {"PMIX_ID": "1931476993.1", "OMPI_COMM_WORLD_SIZE": "4"}
# Its parent is the process of these tests.
PARENT = str(os.getpid())


@pytest.mark.parametrize("how", ["its launcher and library", "telem's launcher", "telem's launcher and library"])
@pytest.mark.parametrize(("variables", "job", "size"), [
    ({**SLURM, "SLURM_STEP_ID": "3"}, "77-3", 16),
    ({**SLURM, **PMIX}, "77", 16),
    (PMIX, "prterun-host-1@1", 8),
    (MPI, "1931476993", 4),
    ({}, PARENT, 1),
], ids=["step", "Slurm", "PMIx", "MPI", "parent"])
def test_a_job_without_a_given_name_has_the_same_one_at_both(proxies, program, own_library, variables, job, size, how):
    (original, original_path), (telem, telem_path) = (proxies.places[name] for name in ("original", "telem"))
    launch([program], None, original_path, "finstrument", **variables)
    if how == "its launcher and library":
        launch([program], None, telem_path, "finstrument", **variables)
    else:
        library = own_library if how == "telem's launcher and library" else {}
        launch([program], None, telem_path, None, launcher=[TELEM, "proxy-run"], **variables, **library)
    expected, found = named(original), named(telem)
    assert (expected["desc"]["jobid"], expected["desc"]["size"]) == (job, size)
    assert described(found) == described(expected)
    assert counted(found) == counted(expected)


@pytest.mark.parametrize(("variables", "job"), [
    ({"PROXY_JOB_ID": "given", **SLURM, "SLURM_STEP_ID": "3"}, "given-3"),
    ({"PROXY_JOB_ID": "my.job.1"}, "my"),
    ({"SLURM_STEP_ID": "3"}, f"{PARENT}-3"),
], ids=["step", "dots", "step of no job"])
def test_a_name_that_its_library_makes_of_another_is_taken_as_it_comes(proxies, program, variables, job):
    for base, path in proxies.places.values():
        launch([program], None, path, "finstrument", **variables)
        assert named(base)["desc"]["jobid"] == job


def test_a_program_of_no_job_counts_in_the_sums_alone_at_both(proxies, program):
    for base, path in proxies.places.values():
        ran([program], PROXY_PATH=str(path), PROXY_PERIOD=str(PERIOD_MS))
        for scope in ("main", proxies.node):
            await_value(base, scope, HITS, INCREMENTS)
        assert {job["jobid"] for job in get(f"{base}/job/list")} == {"main", proxies.node}
        assert get(f"{base}/profiles") == []


def test_ranks_below_mpirun_are_one_job_of_the_same_name_at_both(proxies, program):
    if shutil.which("mpirun") is None or "\nPMIX_ID=" not in ran(["mpirun", "-n", 1, "env"], **ALLOWED).stdout:
        pytest.skip("there is no mpirun that names its ranks by PMIx")
    # A rank counts at one server after the other, so that both see one environment.
    script, words = 'for path in "$2" "$3"; do PROXY_PATH="$path" "$1" || exit; done', [program]
    words += [path for _, path in proxies.places.values()]
    ran(["mpirun", "-n", RANKS, "sh", "-c", script, "sh", *words], PROXY_PERIOD=str(PERIOD_MS), **ALLOWED)
    original, telem = (named(base) for base, _ in proxies.places.values())
    assert described(telem) == described(original)
    assert telem["desc"]["jobid"] and telem["desc"]["size"] == RANKS
    # Ranks need not be there at the same time.
    base, _ = proxies.places["telem"]
    until(lambda: counted(named(base))[HITS][1] == {"Counter": {"value": float(RANKS * INCREMENTS)}})


def test_recorded_answers_are_those_of_the_original(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{CASES / 'stubs'}:{os.environ['PATH']}")
    original = Original(tmp_path)
    try:
        replay_cases(original.base, original.path, "--exact")
    finally:
        original.stop()
