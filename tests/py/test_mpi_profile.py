"""`telem run --mpi-profile`: programs of real MPI libraries, whose calls are counted without a change of them."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import TELEM

PROGRAMS = pathlib.Path(__file__).resolve().parent / "mpi"
HPCC = pathlib.Path("/usr/share/doc/hpcc/examples/_hpccinf.txt")
PATIENCE_S = 180
FAMILIES = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(f"mpicc.{name}") is None, reason=f"mpicc.{name} is not installed"))
    for name in ("mpich", "openmpi")
]
# Open MPI starts no more than there are cores, and nothing for root, unless it is told to.
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}

every_mpi = pytest.mark.parametrize("mpi", FAMILIES)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where libraries are kept: each is built once for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def started(cache, tmp_path):
    """Runs a command in a directory of its own."""

    def run(*command, **more):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TELEM_", "DRAGON_", "OMPI_", "PMI", "LD_PRELOAD"))}
        environment = {**clean, **ALLOWED, "XDG_CACHE_HOME": str(cache), **more}
        return subprocess.run(
            [str(word) for word in command], env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_S,
        )

    return run


@pytest.fixture
def profiled(started, tmp_path):
    """Runs a command under `telem run --mpi-profile`, and gives what it did."""

    def run(mpi, *command, save="out", **more):
        words = [TELEM, "run", f"--mpi-profile=mpicc.{mpi}", "--level", "1", "--listen", "127.0.0.1:0", "--save", tmp_path / save]
        return started(*words, "--", *command, **more)

    return run


def compiled(tmp_path, compiler, source, *flags):
    program = tmp_path / f"{source}-{compiler}".replace(".", "-")
    command = [compiler, "-w", "-o", str(program), *flags, str(PROGRAMS / source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return program


def asked(started, tmp_path, text, save="out"):
    done = started(TELEM, "-q", "sql", tmp_path / save, text, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def counted(started, tmp_path, save="out"):
    """Calls and bytes of each function of each rank, as the saved database has them at last."""
    found = {}
    for at, metric in enumerate(["mpi_calls_total", "mpi_bytes_total"]):
        rows = asked(started, tmp_path, f"SELECT rank, function, pid, max(value) AS total FROM {metric} GROUP BY rank, function, pid", save)
        for row in rows:
            place = found.setdefault((row["rank"], row["function"]), [0, 0])
            assert place[at] == 0, f"one process of each rank: {rows}"
            place[at] = row["total"]
    return {key: tuple(totals) for key, totals in found.items()}


def of_rank(found, rank):
    return {function: what for (of, function), what in found.items() if of == str(rank)}


def exact_calls(rank, size):
    """What tests/py/mpi/exact.c does."""
    double, rounds, count = 8, 100, 16
    return {
        "MPI_Init": (1, 0),
        "MPI_Send": (rounds + 1, rounds * count // 2 * double),
        "MPI_Recv": (rounds, rounds * count // 2 * double),
        "MPI_Irecv": (rounds, rounds * count * double),
        "MPI_Isend": (rounds, rounds * count * double),
        "MPI_Waitall": (rounds, 0),
        "MPI_Sendrecv": (1, 3 * 4 + 3 * 4),
        "MPI_Iprobe": (1, 0),
        "MPI_Barrier": (rounds + 1, 0),
        "MPI_Bcast": (rounds, rounds * count * double),
        "MPI_Allreduce": (rounds, rounds * count * double),
        "MPI_Reduce": (rounds, rounds * 2 * double),
        "MPI_Allgather": (rounds, rounds * 4 * 4),
        "MPI_Alltoall": (1, 5 * double * size),
        "MPI_Gatherv": (1, (rank + 1) * double),
        "MPI_Iallreduce": (1, count * double),
        "MPI_Wait": (1, 0),
        "MPI_Ssend_init": (4, 0),
        "MPI_Request_free": (4, 0),
        "MPI_Scatter": (4, (1 + 2 + 3 + 4) * double),
        "MPI_Win_create": (1, 0),
        "MPI_Win_fence": (2, 0),
        "MPI_Put": (1, 7 * double),
        "MPI_Win_free": (1, 0),
        "MPI_File_open": (1, 0),
        "MPI_File_write_at": (1, 10 * double),
        "MPI_File_sync": (1, 0),
        "MPI_File_read_at": (1, 5 * double),
        "MPI_File_close": (1, 0),
        "MPI_Finalize": (1, 0),
    }


def fortran_calls():
    """What tests/py/mpi/exact.f90 does, the same for every rank."""
    return {
        "MPI_Init": (1, 0), "MPI_Finalize": (1, 0), "MPI_Barrier": (100, 0), "MPI_Waitall": (100, 0),
        "MPI_Send": (100, 6_400), "MPI_Recv": (100, 6_400), "MPI_Isend": (100, 12_800), "MPI_Irecv": (100, 12_800),
        "MPI_Allreduce": (100, 12_800), "MPI_Bcast": (100, 1_200),
    }


@every_mpi
def test_every_call_and_byte_of_a_program_in_c_is_counted(mpi, profiled, started, tmp_path):
    program = compiled(tmp_path, f"mpicc.{mpi}", "exact.c")
    done = profiled(mpi, f"mpirun.{mpi}", "-n", "4", program, tmp_path / "file")
    assert (done.returncode, done.stdout) == (0, "done by 4\n"), done.stderr
    assert "warning" not in done.stderr
    found = counted(started, tmp_path)
    for rank in range(4):
        assert of_rank(found, rank) == exact_calls(rank, 4), rank
    told = asked(started, tmp_path, "SELECT metric, unit FROM metrics WHERE metric LIKE 'mpi_%' ORDER BY metric")
    assert [row["metric"] for row in told] == ["mpi_bytes_total", "mpi_calls_total", "mpi_seconds_total"]
    (spent,) = asked(started, tmp_path, "SELECT min(value) AS least, max(value) AS most FROM mpi_seconds_total")
    assert 0 < spent["least"] <= spent["most"] < PATIENCE_S


@pytest.mark.parametrize("mpi", FAMILIES[:1])
def test_programs_of_one_job_stay_apart_and_the_questions_of_the_page_are_answered(mpi, profiled, started, tmp_path):
    program = compiled(tmp_path, f"mpicc.{mpi}", "exact.c")
    twice = f"mpirun.{mpi} -n 2 {program} file & mpirun.{mpi} -n 2 {program} other; wait"
    done = profiled(mpi, "sh", "-c", twice)
    assert (done.returncode, done.stdout) == (0, "done by 2\n" * 2), done.stderr
    rows = asked(started, tmp_path, "SELECT pid, rank, program, max(value) AS n FROM mpi_calls_total WHERE function = 'MPI_Isend' GROUP BY 1, 2, 3")
    assert sorted((row["rank"], row["program"], row["n"]) for row in rows) == [(rank, program.name, 100) for rank in "0011"]
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "mpi.md").read_text()
    questions = [one for one in re.search(r"```sql\n(.*?)```", page, re.DOTALL)[1].split(";") if one.strip()]
    assert len(questions) == 2
    for question in questions:
        assert asked(started, tmp_path, question), question


@every_mpi
@pytest.mark.parametrize("binding", ["mpi", "mpif.h", "mpi_f08"])
def test_fortran_is_counted_by_all_of_its_bindings(mpi, binding, profiled, started, tmp_path):
    compiler = f"mpif90.{mpi}"
    if shutil.which(compiler) is None or shutil.which("gfortran") is None:
        pytest.skip("gfortran is not installed")
    flags = {"mpi": [], "mpif.h": ["-DINCLUDED"], "mpi_f08": ["-DF08"]}[binding]
    program = compiled(tmp_path, compiler, "exact.f90", "-cpp", *flags)
    done = profiled(mpi, f"mpirun.{mpi}", "-n", "2", program)
    assert (done.returncode, done.stdout) == (0, "done by 2 with  1.0\n"), done.stderr
    found = counted(started, tmp_path)
    for rank in range(2):
        assert of_rank(found, rank) == fortran_calls(), rank


@every_mpi
@pytest.mark.parametrize("ending", ["finalize", "abort"])
def test_calls_of_all_threads_are_counted_however_the_program_ends(mpi, ending, profiled, started, tmp_path):
    program = compiled(tmp_path, f"mpicc.{mpi}", "threads.c", "-pthread")
    done = profiled(mpi, f"mpirun.{mpi}", "-n", "1", program, *(["now"] if ending == "abort" else []))
    assert done.stdout.startswith("80000\n") and done.returncode == (7 if ending == "abort" else 0), done.stderr
    found = of_rank(counted(started, tmp_path), 0)
    assert found["MPI_Iprobe"] == (80_000, 0) and found["MPI_Init_thread"] == (1, 0)


@every_mpi
def test_a_program_of_another_mpi_runs_as_without_it_and_a_note_says_so(mpi, profiled, started, replay, tmp_path):
    other = "openmpi" if mpi == "mpich" else "mpich"
    if shutil.which(f"mpicc.{other}") is None:
        pytest.skip(f"mpicc.{other} is not installed")
    program = compiled(tmp_path, f"mpicc.{other}", "exact.c")
    done = profiled(mpi, f"mpirun.{other}", "-n", "2", program, tmp_path / "file")
    assert (done.returncode, done.stdout) == (0, "done by 2\n"), done.stderr
    assert asked(started, tmp_path, "SELECT count(*) AS n FROM metrics WHERE metric LIKE 'mpi_%'") == [{"n": 0}]
    notes = replay(tmp_path / "out").notes()
    assert [note["description"] for note in notes] == ["MPI is not profiled"] and "mpicc." in notes[0]["notes"]


@every_mpi
def test_each_task_may_start_telem_itself(mpi, started, tmp_path):
    program = compiled(tmp_path, f"mpicc.{mpi}", "exact.c")
    own = [TELEM, "run", f"--mpi-profile=mpicc.{mpi}", "--level", "1", "--save", tmp_path / "out", "--"]
    done = started(f"mpirun.{mpi}", "-n", "3", *own, program, tmp_path / "file")
    assert done.returncode == 0 and "done by 3\n" in done.stdout, done.stderr
    found = counted(started, tmp_path)
    for rank in range(3):
        assert of_rank(found, rank) == exact_calls(rank, 3), rank


@pytest.mark.parametrize("mpi", FAMILIES[:1])
def test_programs_without_mpi_and_what_was_preloaded_before_stay_as_they_are(mpi, profiled, started, tmp_path):
    plain = started("bash", "-c", "echo $((6 * 7)); exit 3")
    done = profiled(mpi, "bash", "-c", "echo $((6 * 7)); exit 3")
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout) == (3, "42\n")
    done = profiled(mpi, sys.executable, "-c", "import os; print(os.environ['LD_PRELOAD'])", LD_PRELOAD="libm.so.6")
    assert re.fullmatch(r"libm\.so\.6:/\S+/telem/mpi/[0-9a-f]{16}/libtelem-mpi\.so\n", done.stdout), done.stdout
    mapped = profiled(mpi, "grep", "-c", "libmpi", "/proc/self/maps")
    assert mapped.stdout == "0\n", "no library of MPI is loaded where the program needs none"


def test_without_a_compiler_the_command_runs_and_the_user_is_told(started, tmp_path):
    run = [TELEM, "run", "--mpi-profile=no-such-mpicc", "--listen", "127.0.0.1:0", "--save", tmp_path / "out"]
    done = started(*run, "--", "sh", "-c", "echo ${LD_PRELOAD-none}; exit 5")
    assert (done.returncode, done.stdout) == (5, "none\n")
    assert "warning: calls of MPI are not counted: 'no-such-mpicc' cannot be run" in done.stderr
    strict = started(*run, "--strict", "--", "echo", "ran")
    assert strict.returncode != 0 and strict.stdout == "" and "no-such-mpicc" in strict.stderr


@every_mpi
def test_python_that_loads_mpi_by_itself_is_counted(mpi, profiled, started, tmp_path):
    pytest.importorskip("mpi4py")
    text = (
        "from mpi4py import MPI; import sys; w = MPI.COMM_WORLD; b = bytearray(100)\n"
        "for _ in range(50): w.Sendrecv(b[:10], (w.rank + 1) % w.size, recvbuf=b)\n"
        "w.Barrier(); print(MPI.Get_library_version().split()[0], flush=True)"
    )
    # Debian calls MPICH's library by another name than all others do.
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libmpi.so.12").symlink_to(next(pathlib.Path("/usr/lib").glob("*/libmpich.so.12"), "none"))
    named = {"mpich": "libmpi.so.12", "openmpi": "libmpi.so.40"}[mpi]
    where = {"LD_LIBRARY_PATH": str(libraries), "MPI4PY_LIBMPI": named}
    done = profiled(mpi, f"mpirun.{mpi}", "-n", "2", sys.executable, "-c", text, **where)
    assert done.returncode == 0, done.stderr
    found = of_rank(counted(started, tmp_path), 1)
    # It calls the functions for large counts where there are any.
    exchanged = found.get("MPI_Sendrecv_c") or found.get("MPI_Sendrecv")
    assert exchanged == (50, 50 * 20) and found["MPI_Barrier"][0] >= 1, found


@pytest.mark.skipif(shutil.which("hpcc") is None or not HPCC.exists(), reason="Debian's hpcc is not installed")
def test_a_benchmark_of_others_runs_the_same_and_is_counted(profiled, started, tmp_path):
    """Debian's HPC Challenge, built with Open MPI: small matrices, two processes."""
    small = HPCC.read_text().replace("\n1000  ", "\n200  ").replace("\n80  ", "\n32  ").replace("\n2            Ps", "\n1            Ps")
    output = tmp_path / "hpccoutf.txt"
    (tmp_path / "hpccinf.txt").write_text(small)

    def summary():
        text = output.read_text()
        output.unlink()
        # It prints lines of processor time only where the clock moved meanwhile.
        passed = re.findall(r"^(?!CPU ).*passed", text, re.MULTILINE | re.IGNORECASE)
        return re.findall(r"^(\w+)=", text, re.MULTILINE), len(passed), "Success=1\n" in text

    command = ["mpirun.openmpi", "-n", "2", "hpcc"]
    plain = started(*command)
    assert plain.returncode == 0, plain.stderr
    without = summary()
    done = profiled("openmpi", *command)
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    assert summary() == without and without[2]
    found = counted(started, tmp_path)
    for rank in range(2):
        own = of_rank(found, rank)
        assert own["MPI_Init"] == own["MPI_Finalize"] == (1, 0)
        assert {"MPI_Isend", "MPI_Irecv", "MPI_Allreduce", "MPI_Alltoall", "MPI_Sendrecv"} <= set(own)
        assert own["MPI_Sendrecv"][1] > 1_000_000
    (times,) = asked(started, tmp_path, "SELECT count(DISTINCT function) AS n FROM mpi_seconds_total WHERE value > 0")
    assert times["n"] >= 15
