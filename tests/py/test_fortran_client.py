"""The Fortran module against the real service: what a program logs is in SQL, and its guide does what it says."""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess

import pytest
from conftest import PATIENCE_S, TELEM
from guide import ROOT, blocks

C = ROOT / "clients" / "c"
FORTRAN = ROOT / "clients" / "fortran"
STRICT = ["-std=f2008", "-Wall", "-Wextra", "-pedantic", "-Werror"]
START_US = 1_767_322_800_000_000

pytestmark = pytest.mark.skipif(shutil.which("gfortran") is None, reason="there is no gfortran here")


def environment(server=None, **more):
    ours = ("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    if server is not None:
        clean["TELEM_CONNECTION"] = server.connection_file
    return {**clean, **more}


def run(*command, server=None, cwd=None, **more):
    done = subprocess.run(
        list(map(str, command)),
        env=environment(server, **more),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 4,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-8000:]}"
    return done.stdout


def compile_with_c(folder, program, *flags):
    """In one line, as the guide says, but for warnings: there are none."""
    built = folder / program.stem
    run("gfortran", "-O2", "-g", *flags, f"-J{folder}", FORTRAN / "telem.f90", program,
        *sorted((C / "src").glob("*.c")), "-I", C / "include", "-pthread", "-o", built)
    return built


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """The C library once, for all programs of these tests."""
    folder = tmp_path_factory.mktemp("c")
    run("gcc", "-O2", "-c", *sorted((C / "src").glob("*.c")), "-I", C / "include", "-pthread", cwd=folder)
    return sorted(folder.glob("*.o"))


@pytest.fixture(scope="module")
def scenario(tmp_path_factory, objects):
    folder = tmp_path_factory.mktemp("fortran")
    built = folder / "scenario"
    run("gfortran", "-O1", "-g", *STRICT, "-fopenmp", "-fcheck=all", f"-J{folder}", FORTRAN / "telem.f90",
        FORTRAN / "tests" / "scenario.f90", *objects, "-pthread", "-o", built)
    return built


def counts(output):
    one = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    assert one["taken"] == one["stored"] + one["refused"] + one["above_level"] + one["dropped"], one
    return one


def test_values_of_all_kinds_are_stored_exactly(served, scenario):
    one = counts(run(scenario, "values", server=served))
    # A time that is given is never "now": that of 0 is dropped, with its step.
    assert one["above_level"] == 1 and one["dropped"] == 2 and one["refused"] == 0
    rows = served.sql("SELECT CAST(ts AS BIGINT) AS us, value, value_int FROM gauge ORDER BY ts")
    assert [row["us"] - START_US for row in rows] == list(range(9))
    assert rows[0]["value"] == 0.1
    assert rows[1]["value"] == struct.unpack("f", struct.pack("f", 0.1))[0]
    assert [row["value_int"] for row in rows[2:5]] == [2**63 - 1, -(2**63), -(2**31)]
    assert rows[7]["value"] == -2.2250738585072014e-308 and rows[8]["value_int"] == 8
    assert [rows[i]["value_int"] for i in (0, 1, 5, 6, 7)] == [None] * 5
    (kinds,) = served.sql(
        "SELECT sum(CAST(value = 'Infinity' AS INT)) AS infinite, sum(CAST(isnan(value) AS INT)) AS nan FROM gauge"
    )
    assert kinds == {"infinite": 1, "nan": 1}
    values = [row["value"] for row in served.sql("SELECT value FROM now ORDER BY value")]
    assert values == [1.5, 2.5, 3, 4]


def test_tags_names_and_units_lose_their_blanks(served, scenario):
    run(scenario, "values", server=served)
    (tags,) = served.sql("SELECT DISTINCT model, z, long_key_of_a_tag FROM gauge")
    assert tags == {"model": "a_b", "z": "u", "long_key_of_a_tag": "v"}
    served.connection.request("GET", "/api/annotations?start_time=1h-ago")
    (note,) = json.loads(served.connection.getresponse().read())
    assert (note["description"], note["notes"]) == ("begins", "a note")
    (job,) = served.sql("SELECT description FROM jobs")
    assert json.loads(job["description"])["settings"] == {"solver": "cg"}
    described = json.dumps(served.sql("SELECT * FROM metrics WHERE metric = 'gauge'"))
    assert '"W"' in described and '"How much."' in described


def test_steps_counters_histograms_and_spans_are_stored(served, scenario):
    run(scenario, "values", server=served)
    rows = served.sql("SELECT step, loss FROM loss ORDER BY ts")
    expected = [(10 * block + i, i * (0.5 if block < 2 else 1)) for block in range(4) for i in range(1, 11)]
    assert [(row["step"], row["loss"]) for row in rows] == [*expected, (41, 99)]
    assert served.sql("SELECT max(value_int) AS n FROM counter") == [{"n": 5_000_000_010}]
    rows = served.sql(
        "SELECT tags['le'] AS le, max(value_int) AS n FROM samples WHERE metric = 'seconds_bucket' GROUP BY 1"
    )
    assert {row["le"]: row["n"] for row in rows} == {"0.1": 1, "1": 2, "10": 3, "+Inf": 4}
    (span,) = served.sql("SELECT count(*) AS n, min(value) AS seconds FROM span")
    assert span["n"] == 1 and 0 <= span["seconds"] < 10


def test_threads_of_openmp_lose_nothing(served, scenario):
    run(scenario, "threads", server=served, OMP_NUM_THREADS="4")
    assert served.sql("SELECT max(value_int) AS n FROM adds") == [{"n": 12_000}]
    assert served.sql("SELECT count(*) AS n, sum(value_int) AS sum FROM own") == [{"n": 4000, "sum": 8_002_000}]


def test_a_program_asks_in_sql(served, scenario):
    assert run(scenario, "sql", server=served) == "asked\n"


def test_options_are_those_of_the_call(served, scenario):
    socket = json.loads(pathlib.Path(served.connection_file).read_text())["socket"]
    assert counts(run(scenario, "options", socket))["stored"] == 1
    rows = served.sql("SELECT value_int, tags['pid'] IS NULL AS has_no_pid FROM samples WHERE metric = 'options'")
    assert rows == [{"value_int": 7, "has_no_pid": True}]


def test_a_program_runs_without_a_service(scenario):
    assert counts(run(scenario, "unserved"))["dropped"] == 1000


def test_the_module_writes_beyond_no_text(served, tmp_path):
    """Under the sanitizer of addresses, with the C library."""
    built = compile_with_c(tmp_path, FORTRAN / "tests" / "scenario.f90", "-fsanitize=address,undefined", "-g")
    # What the runtime of Fortran keeps to the end is not ours.
    run(built, "values", server=served, ASAN_OPTIONS="detect_leaks=0")
    run(built, "sql", server=served, ASAN_OPTIONS="detect_leaks=0")


def test_the_solver_logs_the_residual_of_each_step(served, objects, tmp_path):
    built = tmp_path / "heat"
    run("gfortran", "-O2", *STRICT, f"-J{tmp_path}", FORTRAN / "telem.f90", FORTRAN / "examples" / "heat.f90", *objects,
        "-pthread", "-o", built)
    said = run(built, 300, server=served)
    assert re.search(r"steps: 300, residual: +\d\.\d+E-\d+", said) and re.search(r"slowest step: +\d\.\d+E-\d+ s", said)
    rows = served.sql("SELECT step, heat_residual FROM heat_residual ORDER BY step")
    assert [row["step"] for row in rows] == list(range(1, 301))
    assert all(one["heat_residual"] >= other["heat_residual"] for one, other in zip(rows, rows[1:]))
    assert served.sql("SELECT max(value_int) AS n FROM heat_updates_total") == [{"n": 300 * 64 * 64}]
    assert "not known: no service is named" in run(built, 3)


def follow(text, folder):
    """A block of the guide, in a folder with `clients` and the programs that the guide writes."""
    (folder / "clients").symlink_to(ROOT / "clients")
    for program in blocks("clients/fortran/README.md", "fortran"):
        (folder / program.split()[1]).write_text(program)
    (folder / "bin").mkdir()
    (folder / "bin" / "telem").symlink_to(pathlib.Path(TELEM).resolve())
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return run("bash", "-euo", "pipefail", "-c", text, cwd=folder, XDG_RUNTIME_DIR=str(folder), PATH=path)


def test_the_ten_minutes_of_the_guide_run_as_they_stand(tmp_path):
    said = follow(blocks("clients/fortran/README.md", "sh")[0], tmp_path)
    assert "there is no mean: no service is named" in said
    assert "the mean of the second half is  3.1" in said and "200" in said


@pytest.mark.skipif(not (shutil.which("cmake") and shutil.which("pkg-config")), reason="no cmake or pkg-config here")
def test_the_module_is_installed_as_the_guide_says_and_found_by_another_project(tmp_path):
    assert "there is no mean" in follow(blocks("clients/fortran/README.md", "sh")[1], tmp_path)
    run("cmake", "-S", FORTRAN / "tests" / "consumer", "-B", tmp_path / "consumer",
        f"-DCMAKE_PREFIX_PATH={tmp_path / 'telem-installed'}")
    run("cmake", "--build", tmp_path / "consumer")
    assert "steps: 3," in run(tmp_path / "consumer" / "consumer", 3)
