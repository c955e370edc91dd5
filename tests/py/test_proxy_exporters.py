"""Exporters of Metric Proxy (clients/proxy/exporters), and `telem proxy-run`, which attaches them to commands."""

import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from conftest import TELEM
from proxy_recorder import PATIENCE_S, Recorder

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROXY = ROOT / "clients" / "proxy"
PROGRAMS = pathlib.Path(__file__).resolve().parent / "proxy"
MPI_PROGRAMS = pathlib.Path(__file__).resolve().parent / "mpi"
FAMILIES = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(f"mpicc.{name}") is None, reason=f"mpicc.{name} is not installed"))
    for name in ("mpich", "openmpi")
]
# Open MPI starts no more than there are cores, and nothing for root, unless it is told to.
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def build(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE_S * 4)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    build("cc", "-O1", PROGRAMS / "calls.c", "-pthread", "-o", folder / "calls")
    instrumented = ["-O1", "-finstrument-functions"]
    build("cc", *instrumented, "-shared", "-fPIC", PROGRAMS / "library.c", "-o", folder / "liblibrary.so.2")
    build("cc", *instrumented, PROGRAMS / "functions.c", folder / "liblibrary.so.2", f"-Wl,-rpath,{folder}", "-pthread",
          "-o", folder / "functions.bin")
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where exporters are kept: each is built once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def server():
    one = Recorder()
    yield one
    one.go_away()


@pytest.fixture
def started(server, cache, tmp_path):
    """Runs a command that finds the recorder, and gives what it did."""

    def run(*command, code=0, **more):
        ours = ("PROXY_", "SLURM_", "OMPI_", "PMI", "METRIC_PROXY_", "TELEM_", "LD_PRELOAD")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        environment = {**clean, **ALLOWED, "XDG_CACHE_HOME": str(cache), "PROXY_PATH": server.path, **more}
        done = subprocess.run(list(map(str, command)), env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE_S * 4)
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    return run


# ---- the launcher ----------------------------------------------------------------------------------------------------


def test_exporters_are_listed_as_by_the_original(started):
    assert started(TELEM, "proxy-run", "-l").stdout == " - finstrument\n - mpi\n - strace\n"


def test_the_environment_of_the_command_is_that_of_the_original(started, tmp_path):
    words = "PROXY_JOB_ID PROXY_PATH PROXY_PERIOD METRIC_PROXY_LAUNCHER_PPID LD_PRELOAD"
    shown = ["sh", "-c", f"for one in {words}; do eval \"echo $one=\\${{$one-none}}\"; done"]
    done = started(TELEM, "proxy-run", "-j", "my.job.1", "-u", "/tmp/x", "-S", "250", "--", *shown)
    assert done.stdout.split() == ["PROXY_JOB_ID=my.job.1", "PROXY_PATH=/tmp/x", "PROXY_PERIOD=250",
                                   f"METRIC_PROXY_LAUNCHER_PPID={os.getpid()}", "LD_PRELOAD=none"]
    done = started(TELEM, "proxy-run", "--", *shown, LD_PRELOAD="/lib/x86_64-linux-gnu/libc.so.6")
    assert "PROXY_PERIOD=1000" in done.stdout and "PROXY_JOB_ID=none" in done.stdout
    done = started(TELEM, "proxy-run", "--jobid", "a", "--unixsocket", "/b", "--period", "7", "--", *shown)
    assert done.stdout.split()[:3] == ["PROXY_JOB_ID=a", "PROXY_PATH=/b", "PROXY_PERIOD=7"]


def test_the_exit_status_is_the_commands(started, programs):
    started(TELEM, "proxy-run", "--", "sh", "-c", "exit 37", code=37)
    started(TELEM, "proxy-run", "--", programs / "calls", "die", code=-signal.SIGTERM)
    assert "no-such-program" in started(TELEM, "proxy-run", "--", "no-such-program", code=127).stderr
    assert "no command" in started(TELEM, "proxy-run", code=1).stderr
    why = started(TELEM, "proxy-run", "-e", "mpj", "--", "true", code=1).stderr
    assert "there is no exporter 'mpj'; expected one of finstrument, mpi, strace" in why


def test_a_link_called_proxy_run_is_the_launcher(started, tmp_path):
    (tmp_path / "proxy_run").symlink_to(TELEM)
    done = started(tmp_path / "proxy_run", "-j", "linked", "--", "sh", "-c", "echo $PROXY_JOB_ID $*", "x", "--foo", "--")
    assert done.stdout == "linked --foo --\n"


def test_without_a_compiler_the_command_runs_uncounted(started):
    done = started(TELEM, "proxy-run", "-e", "mpi=no-such-mpicc", "--", "echo", "ran")
    assert done.stdout == "ran\n"
    assert "exporter 'mpi' cannot be built: 'no-such-mpicc' cannot be run" in done.stderr


# ---- system calls ----------------------------------------------------------------------------------------------------


def check_calls(sums):
    """What tests/py/proxy/calls.c does by itself; its start and that of the C library are not counted here."""
    assert sums["strace___hits___getppid"] == 300, "100 of a thread, 200 of a child"
    assert sums["strace___hits___getpgid"] == 30, "of a program that a child ran"
    assert sums["strace___hits___execve"] == 2
    assert (sums["strace___hits___write"], sums["strace___size___write"]) == (50, 500)
    assert sums["strace___size___pread64"] >= 50_000
    assert sums["total___strace___size___write"] == 500
    assert sums["total___strace___size___read"] == sums["strace___size___pread64"] + sums["strace___size___read"]
    assert 0 < sums["strace___time___getppid"] < PATIENCE_S


def test_system_calls_of_threads_children_and_their_programs_are_counted(started, server, programs):
    started(TELEM, "proxy-run", "-e", "strace", "-j", "traced", "--", programs / "calls", "--", "x", code=7)
    (one,) = server.ended(1)
    check_calls(one.sums)
    assert one.job["jobid"] == "traced" and one.job["command"] == f"{programs / 'calls'} -- x"
    assert one.docs["strace___hits___write"] == "Number of calls for syscall"
    assert one.docs["strace___time___write"] == "Time spent in syscall"
    assert one.docs["strace___size___write"] == "Total bytes size for write"
    assert one.docs["total___strace___size___read"] == "Total read size"


def test_counts_are_those_of_strace(started, server, programs, tmp_path):
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    started("strace", "-f", "-c", "-U", "calls,name", "-o", tmp_path / "table", programs / "calls", code=7)
    rows = [line.split() for line in (tmp_path / "table").read_text().splitlines()]
    theirs = {name: int(calls) for calls, name in (row for row in rows if len(row) == 2 and row[0].isdigit())}
    theirs.pop("total")
    started(TELEM, "proxy-run", "-e", "strace", "--", programs / "calls", code=7)
    (one,) = server.ended(1)
    ours = {name.rsplit("___", 1)[1]: calls for name, calls in one.sums.items() if name.startswith("strace___hits___")}
    # How often threads wait for each other is theirs to say.
    for calls in (theirs, ours):
        calls.pop("futex", None)
    assert ours == theirs


def test_signals_and_ends_of_a_traced_command_are_its_own(started, server, programs):
    started(TELEM, "proxy-run", "-e", "strace", "--", programs / "calls", "die", code=-signal.SIGTERM)
    server.ended(1)
    process = subprocess.Popen([TELEM, "proxy-run", "-e", "strace", "--", "sh", "-c",
                                "trap 'exit 5' TERM; echo ready; while :; do read line; done"],
                               env={**os.environ, "PROXY_PATH": server.path}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait(PATIENCE_S) == 5


def test_the_tracer_prints_a_table_when_asked(started, programs, tmp_path):
    build("make", "-s", "-C", PROXY, f"BUILD={tmp_path}", "CFLAGS=-O1 -Werror", tmp_path / "proxy_exporter_strace")
    done = started(tmp_path / "proxy_exporter_strace", "-c", "--", programs / "calls", code=7)
    rows = {line.split()[2]: int(line.split()[1]) for line in done.stderr.splitlines()[1:]}
    assert rows["getppid"] == 300 and rows["total"] == sum(n for name, n in rows.items() if name != "total")
    assert started(tmp_path / "proxy_exporter_strace", code=125).stderr.startswith("usage:")
    started(tmp_path / "proxy_exporter_strace", "--", "no-such-program", code=127)


# ---- functions -------------------------------------------------------------------------------------------------------


def test_functions_are_counted_by_their_own_names_by_preload_alone(started, server, programs):
    started(TELEM, "proxy-run", "-e", "finstrument", "--", programs / "functions.bin")
    (one,) = server.ended(1)
    program = str(programs / "functions_bin").replace("/", "_").replace(".", "_")
    library = str(programs / "liblibrary_2").replace("/", "_").replace(".", "_")
    assert one.sums == {f"func__main_{program}": 1, f"func__turns_{program}": 4, f"func__seen_{program}": 4000,
                        f"func__hidden_{program}": 4000, f"func__of_library_{library}": 17,
                        f"func__deep_{library}": 34}
    assert one.docs[f"func__seen_{program}"] == f"Number of calls to seen_{program}"


def test_a_stripped_program_has_addresses_and_what_it_shows(started, server, programs, tmp_path):
    shutil.copy(programs / "functions.bin", tmp_path / "bare")
    build("strip", tmp_path / "bare")
    started(TELEM, "proxy-run", "-e", "finstrument", "--", tmp_path / "bare")
    (one,) = server.ended(1)
    path = str(tmp_path / "bare").replace("/", "_").replace(".", "_")
    own = {name: calls for name, calls in one.sums.items() if name.endswith(path)}
    assert sorted(own.values()) == [1, 4, 4000, 4000]
    assert all(name.startswith("func__0x") for name in own), own


def test_what_is_preloaded_into_others_says_nothing(started, server):
    done = started(TELEM, "proxy-run", "-e", "finstrument", "--", "echo", "word")
    assert (done.stdout, done.stderr, server.connections) == ("word\n", "", [])


# ---- MPI -------------------------------------------------------------------------------------------------------------


def calls_of_a_rank(rank, size):
    """What tests/py/mpi/exact.c does: calls, bytes that came, bytes that went."""
    double, rounds, count = 8, 100, 16
    whole, half = rounds * count * double, rounds * count // 2 * double
    is_root = rank == 0
    return {
        "init": (1, 0, 0), "finalize": (1, 0, 0), "comm_rank": (1, 0, 0), "comm_size": (1, 0, 0), "barrier": (101, 0, 0),
        "send": (101, 0, half), "recv": (100, half, 0), "irecv": (100, whole, 0), "isend": (100, 0, whole),
        "waitall": (100, 0, 0), "wait": (1, 0, 0), "sendrecv": (1, 12, 12), "iprobe": (1, 0, 0),
        "bcast": (100, 0, whole) if is_root else (100, whole, 0), "allreduce": (100, whole, whole),
        "reduce": (100, rounds * 2 * double if is_root else 0, rounds * 2 * double),
        "allgather": (100, rounds * 4 * 4 * size, rounds * 4 * 4), "alltoall": (1, 5 * double * size, 5 * double * size),
        "gatherv": (1, sum(range(1, size + 1)) * double if is_root else 0, (rank + 1) * double),
        "iallreduce": (1, count * double, count * double),
        "scatter": (4, 10 * double, 10 * double * size if is_root else 0), "put": (1, 0, 7 * double),
        "file_write_at": (1, 0, 10 * double), "file_read_at": (1, 5 * double, 0),
        "type_contiguous": (4, 0, 0), "type_commit": (4, 0, 0), "type_free": (4, 0, 0),
    }


@pytest.mark.parametrize("mpi", FAMILIES)
def test_every_call_and_byte_of_mpi_is_counted(started, server, tmp_path, mpi):
    build(f"mpicc.{mpi}", "-w", "-o", tmp_path / "exact", MPI_PROGRAMS / "exact.c")
    library = tmp_path / "libmetricproxy-exporter-mpi.so"
    build("make", "-s", "-C", PROXY, f"BUILD={tmp_path}", f"MPICC=mpicc.{mpi}", "CFLAGS=-O0", library)
    launch = ["mpirun." + mpi, "-n", "4", TELEM, "proxy-run", "-j", "ranks", "--"]
    done = started(*launch, tmp_path / "exact", tmp_path / "file", LD_PRELOAD=str(library))
    assert done.stdout == "done by 4\n"
    ranks = server.ended(4)
    assert [(one.job["jobid"], one.job["size"]) for one in ranks] == [("ranks", 4)] * 4
    assert all(one.sums["has_started"] == one.sums["has_finished"] == 1 for one in ranks)
    # Who is who is in what they sent: each gives one more than its number.
    by_rank = {int(one.sums["mpi___size_out___mpi_gatherv"] / 8) - 1: one for one in ranks}
    assert sorted(by_rank) == [0, 1, 2, 3]
    for rank, one in by_rank.items():
        expected = calls_of_a_rank(rank, 4)
        found = {name: tuple(one.sums.get(f"mpi___{what}___mpi_{name}", 0) for what in ("hits", "size_in", "size_out"))
                 for name in expected}
        assert found == expected, rank
        every = [(kind, sum(v for name, v in one.sums.items() if name.startswith(f"mpi___{kind}___")))
                 for kind in ("hits", "size_in", "size_out", "size")]
        totals = ("total___mpi___hits___total", "total___mpi___size___total_in", "total___mpi___size___total_out",
                  "total___mpi___size_total")
        assert [total for _, total in every] == [one.sums[name] for name in totals]
        assert one.sums["total___mpi___time___total"] > one.sums["mpi___time___mpi_recv"] > 0
    docs = ranks[0].docs
    assert docs["mpi___hits___mpi_send"] == "Number of function calls for MPI_Send"
    assert docs["mpi___time___mpi_send"] == "Total seconds spent for MPI_Send"
    assert docs["mpi___size___mpi_send"] == "Total size (IN + OUT) for MPI_Send"
    assert docs["mpi___size_in___mpi_recv"] == "Total size (IN) for MPI_Recv"
    assert docs["mpi___size_out___mpi_send"] == "Total size (OUT) for MPI_Send"
    assert docs["total___mpi___size_total"] == "Aggregated MPI metrics"


def test_the_launcher_builds_the_exporter_of_mpi(started, server, tmp_path):
    mpi = next((name for name in ("mpich", "openmpi") if shutil.which(f"mpicc.{name}")), None)
    if mpi is None:
        pytest.skip("no MPI is installed")
    (tmp_path / "alone.c").write_text("""
#include <mpi.h>
int main(int argc, char **argv)
{
    int word[3] = {0};
    MPI_Init(&argc, &argv);
    for (int i = 0; i < 100; i++) MPI_Bcast(word, 3, MPI_INT, 0, MPI_COMM_WORLD);
    return MPI_Finalize();
}
""")
    build(f"mpicc.{mpi}", "-o", tmp_path / "alone", tmp_path / "alone.c")
    # On a busy machine it may take longer than the launcher waits.
    tries = 3
    while (done := started(TELEM, "proxy-run", "-e", f"mpi=mpicc.{mpi}", "--", tmp_path / "alone")).stderr and tries:
        assert "was not done within 60 s" in done.stderr
        tries -= 1
    assert done.stderr == ""
    (one,) = server.ended(1)
    assert (one.sums["mpi___hits___mpi_bcast"], one.sums["mpi___size_out___mpi_bcast"]) == (100, 1200)


# ---- below telem run -------------------------------------------------------------------------------------------------


def test_a_run_with_exporters_has_what_they_count(started, programs, tmp_path):
    run = [TELEM, "run", "--listen", "127.0.0.1:0", "--level", "1", "--save", tmp_path / "saved", "-e", "strace,finstrument"]
    started(*run, "--", programs / "calls", code=7, PROXY_PATH="")
    asked = started(TELEM, "-q", "sql", "--format", "csv", tmp_path / "saved",
                    "SELECT metric, max(value) AS most FROM samples WHERE metric IN "
                    "('strace___hits___getppid', 'strace___size___write') GROUP BY metric ORDER BY metric")
    assert asked.stdout.splitlines()[1:] == ["strace___hits___getppid,300.0", "strace___size___write,500.0"]


def test_a_run_tells_its_command_where_its_own_socket_is_and_which_job_it_belongs_to(started, server, tmp_path):
    words = ("PROXY_PATH", "TELEM_SOCKET", "PROXY_JOB_ID", "TELEM_JOB", "PROXY_PERIOD")
    shown = ["sh", "-c", f"test -S \"$PROXY_PATH\" && for one in {' '.join(words)}; do eval \"echo \\$$one\"; done"]
    run = [TELEM, "-q", "run", "--listen", "127.0.0.1:0", "--level", "1", "--job", "mine", "--save", tmp_path / "saved"]
    path, own_path, job, own_job, period = started(*run, "--", *shown).stdout.splitlines()
    assert path == own_path != server.path and os.path.isabs(path)
    assert job == own_job == "mine"
    # Milliseconds, and as many as where nothing says otherwise.
    assert period == "1000"


def test_a_program_of_the_client_library_sends_to_the_run_around_it_without_any_option(started, tmp_path):
    build("make", "-s", "-C", PROXY, f"BUILD={tmp_path}", tmp_path / "libproxyclient.so")
    (tmp_path / "steps.c").write_text("""
#include <metric_proxy_client.h>
int main(void)
{
    struct MetricProxyClient *client = metric_proxy_init();
    metric_proxy_counter_inc(metric_proxy_counter_new(client, "steps", "Steps done"), 42);
    return metric_proxy_release(client);
}
""")
    build("cc", tmp_path / "steps.c", f"-I{PROXY / 'include'}", f"-L{tmp_path}", "-lproxyclient", f"-Wl,-rpath,{tmp_path}",
          "-o", tmp_path / "steps")
    run = [TELEM, "-q", "run", "--listen", "127.0.0.1:0", "--level", "1", "--job", "mine", "--save", tmp_path / "saved"]
    started(*run, "--", tmp_path / "steps")
    asked = started(TELEM, "-q", "sql", "--format", "csv", tmp_path / "saved",
                    "SELECT job, max(value) AS most FROM samples WHERE metric = 'steps' GROUP BY job")
    assert asked.stdout.splitlines()[1:] == ["mine,42.0"]
