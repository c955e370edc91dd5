"""`examples/ai_in_the_loop.py`, as a user starts it: with telem and without."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ai_in_the_loop.py"
PATIENCE_S = 180


def run(*arguments, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TELEM_") and k != "PYTHONPATH"}
    command = [sys.executable, str(EXAMPLE), *arguments]
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=PATIENCE_S)


def test_it_learns_and_says_so_without_telem():
    done = run("--quick")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(re.findall(r"^worker \d+: (?:good|out of time) after \d+ iterations", done.stdout, re.MULTILINE)) == 2


def test_what_it_logs_is_what_it_did(serve, tmp_path):
    server = serve(tmp_path / "db")
    done = run("--quick", TELEM_CONNECTION=str(tmp_path / "db" / "connection.json"))
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
