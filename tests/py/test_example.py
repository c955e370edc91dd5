"""The examples, as a user starts them: with telem and without."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
PATIENCE_S = 180


def run(example, *arguments, starter=(), **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TELEM_", "DRAGON_")) and k != "PYTHONPATH"}
    command = [*starter, sys.executable, str(EXAMPLES / example), *arguments]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=PATIENCE_S)


def test_it_learns_and_says_so_without_telem():
    done = run("ai_in_the_loop.py", "--quick")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"^worker \d+: (?:good|out of time) after \d+ iterations", done.stdout, re.MULTILINE)) == 2


def test_what_it_logs_is_what_it_did(serve, tmp_path):
    server = serve(tmp_path / "db")
    done = run("ai_in_the_loop.py", "--quick", TELEM_CONNECTION=str(tmp_path / "db" / "connection.json"))
    assert (done.returncode, done.stderr) == (0, "")
    told = {int(w): int(n) for w, n in re.findall(r"^worker (\d+): .* after (\d+) iterations", done.stdout, re.MULTILINE)}
    assert set(told) == {0, 1} and "lost" not in done.stdout
    counted = server.sql("SELECT worker, count(*) AS n, max(value) AS last FROM step GROUP BY worker ORDER BY worker")
    assert [(int(row["worker"]), row["n"], row["last"]) for row in counted] == [(w, n, n) for w, n in sorted(told.items())]
    wrong = server.sql(
        "SELECT count(*) AS n FROM predicted p JOIN actual a USING (ts, worker) JOIN difference d USING (ts, worker) "
        "WHERE p.value - a.value = d.value"
    )
    assert wrong == [{"n": sum(told.values())}]


SCALE = "scale_work.py"


def test_scaling_work_says_its_times_without_telem():
    done = run(SCALE, "--quick")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"^iteration \d: ", done.stdout, re.MULTILINE)) == 3 and "2 workers filter 6 images" in done.stdout
    for bad in [["--workers", "0"], ["--work-time", "-1"], ["--work-time", "nan"], ["--burns=-1"]]:
        assert run(SCALE, *bad).returncode == 2
    assert "--memory" in run(SCALE, "--help").stdout


def scaled(server):
    rows = server.sql("SELECT metric, count(*) AS n, count(DISTINCT tags['puid']) AS workers, max(value) AS most FROM samples GROUP BY metric")
    return {row["metric"]: row for row in rows}


def test_scaling_work_logs_every_image_and_its_dashboard_shows_it(serve, tmp_path):
    server = serve(tmp_path / "db")
    done = run(SCALE, "--quick", TELEM_CONNECTION=str(tmp_path / "db" / "connection.json"), TELEM_LEVEL="3")
    assert (done.returncode, done.stderr) == (0, "")
    found = scaled(server)
    assert {name: row["n"] for name, row in found.items()} == {
        "pool_start_time": 1, "iteration": 3, "iteration_time": 3, "image_time": 18, "images": 18, "elapsed_time": 18,
    }
    per_worker = server.sql("SELECT max(value) AS n FROM images GROUP BY puid")
    assert sum(row["n"] for row in per_worker) == 18
    board = json.loads((EXAMPLES / "scale_work.json").read_text())
    asked = [target for panel in board["panels"] for target in panel.get("targets", [])]
    assert {target["metric"] for target in asked} >= set(found) - {"iteration"}
    for target in asked:
        if target["metric"] in found:
            sub = {"metric": target["metric"], "aggregator": target["aggregator"], "filters": target["filters"], "downsample": f"1s-{target['downsampleAggregator']}"}
            lines = server.query("10m-ago", "now", **sub)
            by_worker = any(filter["tagk"] == "puid" for filter in target["filters"])
            assert len(lines) == (len(per_worker) if by_worker else 1), target


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")
def test_scaling_work_is_shared_by_the_processes_that_mpirun_started(serve, tmp_path):
    server = serve(tmp_path / "db")
    # Open MPI starts no more than there are cores, and nothing for root, unless it is told to.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = run(SCALE, "--quick", starter=["mpirun", "-n", "3"], TELEM_CONNECTION=str(tmp_path / "db" / "connection.json"), **allowed)
    assert done.returncode == 0, done.stderr
    assert "3 workers filter 6 images" in done.stdout and done.stdout.count("iteration 0: ") == 1
    found = scaled(server)
    assert (found["image_time"]["n"], found["image_time"]["workers"], found["iteration_time"]["n"]) == (18, 3, 3)
    assert server.sql("SELECT DISTINCT rank FROM images ORDER BY rank") == [{"rank": str(rank)} for rank in range(3)]
