"""Exporters of Metric Proxy itself: what they count is the same at its server, at telem, and below `telem run`."""

import json
import shutil

import pytest
from conftest import TELEM
from original_proxy import PERIOD_MS, PREFIX, build, counted, described, needs_original, profile_of, proxies, ran  # noqa: F401
from test_proxy_exporters import ALLOWED, MPI_PROGRAMS, PROGRAMS, PROXY, calls_of_a_rank

pytestmark = needs_original
LAUNCHER = [PREFIX / "bin" / "proxy_run", "-S", PERIOD_MS]
LIBRARIES = PREFIX / "lib"
RANKS = 4
# The exporter of MPI needs no second to find out how fast the processor's clock is.
ENVIRONMENT = {**ALLOWED, "FORCED_TICKS": "1000000000"}
# It was built by the MPI that is called so.
has_mpi = (LIBRARIES / "libmetricproxy-exporter-mpi.so").exists() and shutil.which("mpicc") and shutil.which("mpirun")
needs_mpi = pytest.mark.skipif(not has_mpi, reason="it has no exporter of MPI, or there is no MPI")
needs_strace = pytest.mark.skipif(not (PREFIX / "bin" / "proxy_exporter_strace").exists(), reason="it has no strace exporter")
needs_addr2line = pytest.mark.skipif(shutil.which("addr2line") is None, reason="the original finds names by addr2line")


def linked(*libraries):
    """Linker options; those of a library whose functions are called by nobody, too."""
    return ["-Wl,--no-as-needed", f"-L{LIBRARIES}", *(f"-l{name}" for name in libraries), f"-Wl,-rpath,{LIBRARIES}"]


def exact(counters):
    """What was counted, without the time that it took, which is no two times the same."""
    return {name: told for name, told in counters.items() if "___time___" not in name}


def run_by_telem(tmp_path, *command):
    """The last value of each counter of a job of `telem run`, whose tools find it by what the environment says."""
    saved = tmp_path / "saved"
    ran([TELEM, "-q", "run", "--level", "1", "--listen", "127.0.0.1:0", "--save", saved, "--", *command], **ENVIRONMENT)
    last = "SELECT metric, max(value) AS value FROM samples GROUP BY metric"
    rows = json.loads(ran([TELEM, "-q", "sql", saved, last, "--format", "json"]).stdout)
    return {row["metric"]: row["value"] for row in rows}


def check_everywhere(proxies, tmp_path, exporter, *command, around=()):
    """Counts a command at both servers and below `telem run`; gives the profile's counters of the original."""
    profiles = {}
    for name, (base, path) in proxies.places.items():
        ran([*around, *LAUNCHER, "-j", "counted", "-u", path, "-e", exporter, "--", *command], **ENVIRONMENT)
        profiles[name] = profile_of(base, "counted")
    original, telem = (exact(counted(profiles[name])) for name in ("original", "telem"))
    assert original == telem
    assert described(profiles["original"]) == described(profiles["telem"])
    values = {name: told["Counter"]["value"] for name, (_, told) in original.items()}
    assert exact(run_by_telem(tmp_path, *around, *LAUNCHER, "-e", exporter, "--", *command)) == values
    return values


def check_calls_of_ranks(values):
    """Calls are exact; the original's sizes differ from telem's own, as it takes the room for what came."""
    ranks = [calls_of_a_rank(rank, RANKS) for rank in range(RANKS)]
    calls = {f"mpi___hits___mpi_{name}": sum(rank[name][0] for rank in ranks) for name in ranks[0]}
    assert {name: values[name] for name in calls} == calls
    assert values["has_started"] == values["has_finished"] == RANKS
    assert values["mpi___size_out___mpi_gatherv"] > 0


@pytest.fixture
def ranks(tmp_path):
    """Builds the program of MPI, and gives it with what starts it."""

    def made(*flags):
        build("mpicc", "-w", "-o", tmp_path / "exact", MPI_PROGRAMS / "exact.c", *flags)
        return ["mpirun", "-n", RANKS], [tmp_path / "exact", tmp_path / "file"]

    return made


@needs_mpi
def test_its_exporter_of_mpi_counts_the_same_at_both(proxies, tmp_path, ranks):
    mpirun, program = ranks()
    check_calls_of_ranks(check_everywhere(proxies, tmp_path, "mpi", *program, around=mpirun))


@needs_mpi
def test_a_program_of_mpi_that_is_linked_with_its_exporter_needs_no_launcher(proxies, tmp_path, ranks):
    mpirun, program = ranks(*linked("metricproxy-exporter-mpi", "proxyclient"))
    rarely, told = ["env", f"PROXY_PERIOD={PERIOD_MS}"], {}
    for name, (base, path) in proxies.places.items():
        ran([*mpirun, *rarely, *program], PROXY_PATH=str(path), PROXY_JOB_ID="linked", **ENVIRONMENT)
        told[name] = exact(counted(profile_of(base, "linked")))
    assert told["original"] == told["telem"]
    values = {name: one["Counter"]["value"] for name, (_, one) in told["telem"].items()}
    check_calls_of_ranks(values)
    assert exact(run_by_telem(tmp_path, *mpirun, *rarely, *program)) == values


@needs_mpi
def test_telems_exporter_of_mpi_counts_the_same_calls(tmp_path, ranks):
    mpirun, program = ranks()
    library = tmp_path / "libmetricproxy-exporter-mpi.so"
    build("make", "-s", "-C", PROXY, f"BUILD={tmp_path}", "MPICC=mpicc", "CFLAGS=-O0", library)
    hits = lambda values: {name: value for name, value in values.items() if "mpi___hits___" in name}
    theirs = run_by_telem(tmp_path / "theirs", *mpirun, *LAUNCHER, "-e", "mpi", "--", *program)
    ours = run_by_telem(tmp_path / "ours", *mpirun, "env", f"LD_PRELOAD={library}", *program)
    assert hits(ours) == hits(theirs) != {}


@needs_strace
def test_its_exporter_of_system_calls_counts_the_same_at_both(proxies, tmp_path):
    (tmp_path / "calls.c").write_text("""
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void)
{
    char bytes[1000];
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    for (int i = 0; i < 50; i++) {
        if (readlink("/proc/self/exe", bytes, sizeof bytes) < 0 || read(zero, bytes, sizeof bytes) != sizeof bytes) return 1;
        if (write(null, bytes, 10) != 10) return 2;
        syscall(SYS_getppid);
    }
    return 0;
}
""")
    build("cc", "-o", tmp_path / "calls", tmp_path / "calls.c")
    values = check_everywhere(proxies, tmp_path, "strace", tmp_path / "calls")
    assert values["strace___hits___getppid"] == values["strace___hits___readlink"] == 50
    assert (values["strace___hits___write"], values["strace___size___write"]) == (50, 500)
    assert values["total___strace___size___write"] == 500 and values["strace___size___read"] >= 50_000


@needs_addr2line
@pytest.mark.parametrize("how", ["linked", "preloaded"])
def test_its_exporter_of_functions_counts_the_same_at_both(proxies, tmp_path, how):
    # It sends at the end of a process only what that releases.
    (tmp_path / "end.c").write_text("""
#include <stddef.h>
#include <dlfcn.h>
__attribute__((no_instrument_function, destructor)) static void end(void)
{
    void *(*begin)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "metric_proxy_init");
    int (*release)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "metric_proxy_release");
    if (release) release(begin());
}
""")
    instrumented = ["-O1", "-finstrument-functions"]
    build("cc", *instrumented, "-shared", "-fPIC", PROGRAMS / "library.c", "-o", tmp_path / "liblibrary.so.2")
    build("cc", *instrumented, PROGRAMS / "functions.c", tmp_path / "end.c", tmp_path / "liblibrary.so.2",
          f"-Wl,-rpath,{tmp_path}", *(linked("proxyclient") if how == "linked" else []), "-pthread", "-o", tmp_path / "functions")
    values = check_everywhere(proxies, tmp_path, "finstrument", tmp_path / "functions")
    calls = {name: value for name, value in values.items() if name.startswith("func__")}
    # It gives some calls to another function's name: 8,005 of the program and 51 of the library are in the sum.
    assert sum(calls.values()) == 8056, calls
