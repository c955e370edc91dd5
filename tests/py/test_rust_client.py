"""The crate telem-client against the real service: what a program logs is in SQL, and its guide does what it says."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import PATIENCE_S, TELEM
from guide import ROOT, blocks

START_US = 1_767_322_800_000_000
GUIDE = "clients/rust/README.md"


def environment(server=None, **more):
    ours = ("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    if server is not None:
        clean["TELEM_CONNECTION"] = server.connection_file
    return {**clean, "CARGO_NET_OFFLINE": "true", **more}


def run(*command, server=None, cwd=ROOT, **more):
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


@pytest.fixture(scope="module")
def programs():
    """The folder of the crate's examples."""
    said = run("cargo", "build", "--quiet", "--locked", "-p", "telem-client", "--examples", "--message-format=json")
    built = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    made = {one["target"]["name"]: one["executable"] for one in built if one.get("executable")}
    return {name: pathlib.Path(made[name]) for name in ("client_scenario", "heat")}


def counts(output):
    one = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    assert one["taken"] == one["stored"] + one["refused"] + one["above_level"] + one["dropped"], one
    return one


def test_values_names_times_and_totals_are_stored_exactly(served, programs):
    one = counts(run(programs["client_scenario"], "values", server=served))
    # Times that are none: one sample, and one with its step.
    assert one["above_level"] == 1 and one["dropped"] == 3 and one["refused"] == 0
    rows = served.sql("SELECT CAST(ts AS BIGINT) AS us, value, value_int FROM gauge ORDER BY ts")
    assert [row["us"] - START_US for row in rows] == list(range(9))
    assert rows[0]["value"] == 0.1 and rows[1]["value"] == -1e300 and rows[4]["value"] == 2.0**64
    assert rows[7]["value"] == 0.10000000149011612
    assert [row["value_int"] for row in rows] == [None, None, 2**63 - 1, -(2**63), None, None, None, None, 8]
    (kinds,) = served.sql(
        "SELECT sum(CAST(value = 'Infinity' AS INT)) AS infinite, sum(CAST(isnan(value) AS INT)) AS nan FROM gauge"
    )
    assert kinds == {"infinite": 1, "nan": 1}
    assert served.sql("SELECT DISTINCT model, z FROM gauge") == [{"model": "a_b", "z": "\u00fc"}]
    rows = served.sql("SELECT step, loss FROM loss ORDER BY ts")
    assert [(row["step"], row["loss"]) for row in rows] == [(i, i * 0.5) for i in range(10)] + [(10, 99.0)]
    assert [(row["value"], row["value_int"]) for row in served.sql("SELECT value, value_int FROM now ORDER BY ts")] == [
        (1.5, None),
        (2.0, 2),
    ]
    assert served.sql("SELECT max(value_int) AS n FROM counter") == [{"n": 5_000_000_001}]
    rows = served.sql(
        "SELECT tags['le'] AS le, max(value_int) AS n FROM samples WHERE metric = 'seconds_bucket' GROUP BY 1"
    )
    assert {row["le"]: row["n"] for row in rows} == {"0.1": 1, "1": 2, "10": 3, "+Inf": 4}


def test_a_span_ends_with_its_scope_once_and_not_where_it_is_cancelled(served, programs):
    run(programs["client_scenario"], "values", server=served)
    (spans,) = served.sql("SELECT count(*) AS n, min(value) AS least, max(value) AS most FROM span")
    assert spans["n"] == 3 and 0 <= spans["least"] <= spans["most"] < 60


def test_what_is_said_of_a_metric_and_of_the_job_is_kept(served, programs):
    run(programs["client_scenario"], "values", server=served)
    described = json.dumps(served.sql("SELECT * FROM metrics WHERE metric = 'gauge'"))
    assert '"W"' in described and '"How much."' in described
    served.connection.request("GET", "/api/annotations?start_time=1h-ago")
    (note,) = json.loads(served.connection.getresponse().read())
    assert (note["description"], note["notes"]) == ("begins", "a note")
    (job,) = served.sql("SELECT description FROM jobs")
    assert json.loads(job["description"])["settings"] == {"solver": "cg"}


def test_threads_lose_nothing_and_the_end_of_main_sends_it(served, programs):
    run(programs["client_scenario"], "threads", server=served)
    assert served.sql("SELECT max(value_int) AS n FROM adds") == [{"n": 12_000}]
    assert served.sql("SELECT count(*) AS n, sum(value_int) AS sum FROM own") == [{"n": 4000, "sum": 4 * 499_500}]


def test_a_program_asks_in_sql(served, programs):
    assert run(programs["client_scenario"], "sql", server=served) == "asked\n"


def test_options_are_those_of_the_call(served, programs):
    socket = json.loads(pathlib.Path(served.connection_file).read_text())["socket"]
    assert counts(run(programs["client_scenario"], "options", socket))["stored"] == 1
    rows = served.sql("SELECT value_int, tags['pid'] IS NULL AS has_no_pid FROM samples WHERE metric = 'options'")
    assert rows == [{"value_int": 7, "has_no_pid": True}]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind here")
@pytest.mark.parametrize("scenario", ["values", "sql"])
def test_valgrind_finds_nothing(served, programs, scenario):
    # What the standard library keeps to the end is not looked for.
    run("valgrind", "--quiet", "--error-exitcode=9", "--leak-check=no", programs["client_scenario"], scenario,
        server=served)


def test_the_solver_logs_the_residual_of_each_step(served, programs):
    said = run(programs["heat"], server=served)
    steps = int(re.search(r"steps: (\d+), residual: 9\.\d+e-3", said).group(1))
    assert re.search(r"slowest step: \d\.\d+e-\d+ s", said)
    assert served.sql("SELECT count(*) AS n, max(step) AS last FROM heat_residual") == [{"n": steps, "last": steps}]
    assert served.sql("SELECT max(value_int) AS n FROM heat_updates_total") == [{"n": steps * 64 * 64}]
    assert "not known: no service is named" in run(programs["heat"])


def test_the_package_holds_the_sources_of_the_c_library():
    packed = run("cargo", "package", "--list", "--allow-dirty", "--quiet", "-p", "telem-client").split()
    sources = {f"c/src/{path.name}" for path in (ROOT / "clients" / "c" / "src").iterdir()}
    assert sources < set(packed) and "c/include/telem.h" in packed
    assert not [path for path in packed if path.startswith("c/tests")]


def test_the_ten_minutes_of_the_guide_run_as_they_stand(tmp_path):
    (tmp_path / "telem").symlink_to(ROOT)
    # The versions of this workspace, of which nothing must be fetched.
    make, use = blocks(GUIDE, "sh")
    run("bash", "-euo", "pipefail", "-c", make, cwd=tmp_path)
    (tmp_path / "solver" / "src" / "main.rs").write_text(blocks(GUIDE, "rust")[0])
    shutil.copy(ROOT / "Cargo.lock", tmp_path / "solver" / "Cargo.lock")
    binary = tmp_path / "bin"
    binary.mkdir()
    (binary / "telem").symlink_to(pathlib.Path(TELEM).resolve())
    target = tmp_path / "solver" / "target"
    said = run("bash", "-euo", "pipefail", "-c", use, cwd=tmp_path, XDG_RUNTIME_DIR=str(tmp_path),
               CARGO_TARGET_DIR=str(target), PATH=f"{binary}{os.pathsep}{os.environ['PATH']}")
    assert "root 1.414214, least residual not known: no service is named" in said
    assert re.search(r"root 1\.414214, least residual \d\.\de-1\d", said) and "| 200 " in re.sub(" +", " ", said)
