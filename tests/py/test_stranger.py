"""A training script of a package that nobody here wrote, gensim's word2vec, with telem beside it: it does what it does without,
and the job's hardware metrics and its log are there in SQL."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys

from conftest import TELEM

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
PATIENCE_S = 300
SCRIPT = "gensim.scripts.word2vec_standalone"
# The script as it is, in a process where gensim's loggers have telem's handler: as a site's own start file would do it.
OBSERVED = f"""
import logging, runpy, sys, telem
logging.getLogger('gensim').addHandler(telem.LoggingHandler(level=logging.INFO, per_minute=6000, burst=1000))
sys.argv[0] = "word2vec"
runpy.run_module("{SCRIPT}", run_name="__main__", alter_sys=True)
"""


def corpus(path):
    chosen = random.Random(1)
    words = [f"w{number}" for number in range(1_000)]
    path.write_text("".join(" ".join(chosen.choice(words) for _ in range(20)) + "\n" for _ in range(4_000)))


def train(tmp_path, starter, program, *more):
    """Exit code, what was printed without times, and the model."""
    out = tmp_path / "vectors.txt"
    out.unlink(missing_ok=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK"))}
    arguments = ["-output", str(out), "-size", "40", "-threads", "1", "-iter", "25", "-min_count", "1", *more]
    done = subprocess.run(
        [*starter, sys.executable, *program, *arguments],
        env={**clean, "PYTHONPATH": str(CLIENT), "PYTHONHASHSEED": "0"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    return done, out.read_bytes() if out.exists() else None


def words_of(log):
    """The lines of its log without what differs from run to run: times, speeds, paths."""
    lines = [line.split(" : ", 3)[-1] for line in log.splitlines() if "PROGRESS" not in line and "lifecycle" not in line]
    return [" ".join(word for word in re.findall(r"[A-Za-z]+", line) if len(word) > 2)[:30] for line in lines if "running /" not in line]


def test_gensim_trains_the_same_model_and_its_run_is_recorded(tmp_path):
    corpus(tmp_path / "corpus.txt")
    given = ("-train", str(tmp_path / "corpus.txt"))
    alone, model = train(tmp_path, [], ["-m", SCRIPT], *given)
    assert alone.returncode == 0 and model
    job = [TELEM, "run", "-qq", "--level", "3", "--interval", "200ms", "--listen", "127.0.0.1:0", "--save", str(tmp_path / "saved"), "--"]
    beside, same = train(tmp_path, job, ["-c", OBSERVED], *given)
    assert (beside.returncode, beside.stdout, same) == (0, alone.stdout, model), beside.stderr
    assert words_of(beside.stderr) == words_of(alone.stderr) != []

    def sql(text):
        done = subprocess.run([TELEM, "sql", str(tmp_path / "saved"), "--format", "json", text], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    (of_node,) = sql("SELECT count(*) AS n FROM samples WHERE metric = 'node_cpu_seconds_total'")
    (of_job,) = sql("SELECT max(value) AS cpu FROM job_process_cpu_seconds_total")
    assert of_node["n"] > 0 and of_job["cpu"] > 0
    (records,) = sql(
        "SELECT last(value, ts) AS n FROM samples WHERE metric = 'log_records_total' AND tags['level'] = 'info'"
    )
    assert records["n"] > 5
    (ended,) = sql("SELECT state, exit_code FROM jobs")
    assert ended == {"state": "completed", "exit_code": 0}


def test_gensim_fails_the_same_with_telem_beside_it(tmp_path):
    given = ("-train", str(tmp_path / "nothing.txt"))
    alone, _ = train(tmp_path, [], ["-m", SCRIPT], *given)
    job = [TELEM, "run", "-qq", "--listen", "127.0.0.1:0", "--save", str(tmp_path / "saved"), "--"]
    beside, _ = train(tmp_path, job, ["-c", OBSERVED], *given)
    assert beside.returncode == alone.returncode != 0 and beside.stdout == alone.stdout
    assert alone.stderr.splitlines()[-1] == beside.stderr.splitlines()[-1]
