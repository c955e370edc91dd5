"""examples/ai_in_the_loop: a simulation of MPI, workers that learn from it, and a controller that reacts, in one job."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import TELEM

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ai_in_the_loop"
PATIENCE_S = 300
MPI = next((name for name in ("openmpi", "mpich") if shutil.which(f"mpicc.{name}") and shutil.which(f"mpirun.{name}")), None)
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

pytestmark = pytest.mark.skipif(MPI is None, reason="no MPI is installed")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The example, run once: what it printed, and where it is saved."""
    pytest.importorskip("numpy")
    directory = tmp_path_factory.mktemp("loop")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TELEM_", "DRAGON_", "OMPI_", "PMI")) and k != "PYTHONPATH"}
    program = [sys.executable, str(EXAMPLE / "main.py"), "--small", "--mpicc", f"mpicc.{MPI}"]
    command = [TELEM, "run", "--listen", "127.0.0.1:0", "--interval", "500ms", "--save", str(directory / "saved"), "--", *program]
    found = subprocess.run(
        command, cwd=directory, env={**clean, **ALLOWED}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout, directory / "saved"


def asked(saved, text):
    words = [TELEM, "-q", "sql", str(saved), text, "--format", "json"]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_the_controller_reacts_where_the_simulation_goes_to_a_range_without_data(done, replay):
    printed, saved = done
    reactions = re.findall(r"^ *[\d.]+ s: data for (\S+) to (\S+): loss ([\d.]+) is above", printed, re.MULTILINE)
    assert len(reactions) >= 1, printed
    assert f"{len(reactions)} reactions; the last loss is" in printed
    # The data that were made reach into the second range, of which there were none.
    assert any(1.6 < float(high) < 4.3 for _, high, _ in reactions), reactions
    (rows,) = asked(saved, "SELECT max(value) AS most FROM reactions")
    assert rows["most"] == 1 + len(reactions)
    notes = replay(saved).notes()
    told = [note["description"] for note in notes]
    assert len(told) == 1 + len(reactions) and told[0] == "new data: the first" and told[1].startswith("new data: loss ")
    assert all("CPU" in note["notes"] for note in notes[1:]), "the controller read the use of the CPU"


def test_what_all_its_programs_logged_is_there(done):
    _, saved = done
    (made,) = asked(saved, "SELECT sum(n) AS n FROM (SELECT rank, max(value) AS n FROM samples_generated_total GROUP BY rank)")
    assert made["n"] >= 4_000
    (actual,) = asked(saved, "SELECT count(*) AS n, min(value) AS least, max(value) AS most FROM taylor_sin_actual")
    assert actual["n"] >= 120 and actual["least"] < -0.5 and actual["most"] > 0.99
    (off,) = asked(saved, "SELECT max(value) AS most FROM taylor_series_error")
    assert off["most"] < 1e-6
    workers = asked(saved, "SELECT worker, count(*) AS n FROM loss GROUP BY worker ORDER BY worker")
    assert [row["worker"] for row in workers] == ["0", "1"] and min(row["n"] for row in workers) > 5
    (terms,) = asked(saved, "SELECT count(DISTINCT rank) AS ranks FROM taylor_seconds")
    assert terms["ranks"] == 2
    # Trained on the first range, the network is good there; in the second one it becomes good.
    (last,) = asked(saved, "SELECT last(value, ts) AS loss FROM loss_of_all")
    (worst,) = asked(saved, "SELECT max(value) AS loss FROM loss_of_all")
    assert last["loss"] < worst["loss"]


def test_its_dashboard_is_answered_by_a_replay(done, replay):
    _, saved = done
    server = replay(saved)
    (range_,) = server.sql("SELECT min(ts) AS first, max(ts) AS last FROM taylor_sin_actual")
    board = json.loads((EXAMPLE / "dashboard.json").read_text())
    asked_for = [target for panel in board["panels"] for target in panel.get("targets", [])]
    titles = {panel["title"] for panel in board["panels"]}
    assert {"sin(x), actual and predicted", "Difference, by worker", "CPU"} <= titles
    for target in asked_for:
        sub = {key: target[key] for key in ("metric", "aggregator", "filters")}
        lines = server.query("1h-ago", "now", **sub, downsample=f"1s-{target['downsampleAggregator']}")
        assert lines and all(line["dps"] for line in lines), target
        if any(filter["tagk"] == "worker" for filter in target["filters"]):
            assert len(lines) == 2, target
    assert range_["first"] < range_["last"]
