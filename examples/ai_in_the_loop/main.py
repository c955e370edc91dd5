#!/usr/bin/env python3
"""AI in the loop: a simulation, workers that learn from it, and a controller that watches both by SQL.

    telem run --save ./loop -- python3 examples/ai_in_the_loop/main.py

Three programs log to telem:

* taylor (C, MPI) simulates: it computes sin(x) by its Taylor series, and the range of x changes as it goes on;
* worker.py (Python, several) trains a network on data, and logs how well it predicts what taylor computes now;
* generate (C, MPI) makes training data for a range.

This program is the controller. It asks telem, from inside the job, for the loss of the workers and for the use of the
CPU. Where the loss is too high, because the simulation went where no data are, it has new data made for that range.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from place import CLIENTS, HERE, Telemetry

TERMS = 14
RANGES = [(0.0, 1.6), (1.6, 4.2), (4.2, 6.3), (-3.2, 0.0)]
"""Where the simulation is, one after the other."""
WATCH_S, SETTLE_S = 0.5, 4.0
"""Between two looks, and from one reaction to the next: training takes its time."""
CALM = 4
"""Looks in a row at a good loss after which all is over, once the simulation is in its last range."""

# The mean of the workers' last losses, how many they are, and where the simulation was meanwhile.
LOSS = """
SELECT avg(value) AS loss, count(*) AS losses, count(DISTINCT tags['worker']) AS workers
FROM samples WHERE metric = 'loss' AND ts > '2s-ago'
"""
STEP = "SELECT max(value) AS step FROM step WHERE ts > '10s-ago' AND worker IS NULL"
RANGE = "SELECT min(value) AS low, max(value) AS high FROM taylor_x WHERE ts > '3s-ago'"
CPU = "SELECT avg(value) AS percent FROM cpu_percent WHERE ts > '5s-ago'"


def build(mpicc, directory):
    """Compiles the programs of MPI, with the C client in the checkout or the installed one."""
    client, library = CLIENTS / "c", ["-ltelem"]
    if client.is_dir():
        sources = [str(path) for path in sorted((client / "src").glob("*.c"))]
        subprocess.run([mpicc, "-O1", "-pthread", "-c", *sources], cwd=directory, check=True)
        library = [f"-I{client / 'include'}", *(str(directory / f"{pathlib.Path(path).stem}.o") for path in sources), "-pthread"]
    for program in ("taylor", "generate"):
        command = [mpicc, "-O2", "-o", str(directory / program), str(HERE / f"{program}.c"), *library, "-lm"]
        subprocess.run(command, check=True)


class Launcher:
    """Starts programs of MPI, by the launcher of the compiler's MPI."""

    def __init__(self, mpicc, mpirun, ranks):
        ending = pathlib.Path(mpicc).name.partition("mpicc")[2]
        wanted = [mpirun] if mpirun else [f"mpirun{ending}", f"mpiexec{ending}", "mpirun"]
        found = [name for name in wanted if shutil.which(name)]
        if not found:
            sys.exit(f"none of {', '.join(wanted)} is on PATH: load your MPI's module, or name one with --mpirun")
        self.mpirun, self.ranks = found[0], ranks
        # More processes than cores, as Open MPI starts them only when told so.
        self.environment = {**os.environ, "OMPI_MCA_rmaps_base_oversubscribe": "1"}

    def start(self, program, *arguments, ranks=None):
        command = [self.mpirun, "-n", str(ranks or self.ranks), str(program), *map(str, arguments)]
        return subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL)


class Controller:
    """Looks at loss and CPU, and has new data made."""

    def __init__(self, telemetry, launcher, directory, options):
        self.telemetry, self.launcher, self.directory, self.options = telemetry, launcher, directory, options
        self.files, self.reacted, self.began = 0, 0.0, time.monotonic()
        self.losses, self.calm = [], 0

    def is_over(self, steps):
        """Whether the simulation went through all ranges, and is predicted well in the last one."""
        step = self.ask(STEP).get("step") if self.calm >= CALM else None
        return step is not None and step >= steps

    def ask(self, question):
        rows = self.telemetry.sql(question)
        return rows[0] if rows else {}

    def make_data(self, low, high, why):
        """Has ``generate`` make the next file of data. It appears to the workers when it is whole."""
        cpu = self.ask(CPU).get("percent") if self.telemetry.level >= 2 else None
        # A machine with room to spare makes them by more processes.
        ranks = self.launcher.ranks if cpu is None or cpu < 80 else 1
        margin = 0.05 * (high - low)
        made, path = self.directory / "made.bin", self.directory / f"data-{self.files}.bin"
        arguments = [TERMS, self.options.samples, low - margin, high + margin, self.files, made]
        job = self.launcher.start(self.directory / "generate", *arguments, ranks=ranks)
        if job.wait(timeout=self.options.seconds) != 0:
            sys.exit(f"generate ended with {job.returncode}")
        made.rename(path)
        self.files += 1
        self.reacted = time.monotonic()
        busy = "" if cpu is None else f", CPU {cpu:.0f} %"
        self.telemetry.note(f"new data: {why}", details=f"{low:.2f} to {high:.2f} by {ranks} processes{busy}", number=self.files)
        self.telemetry.log({"reactions": self.files, "data_low": low, "data_high": high})
        print(f"{time.monotonic() - self.began:5.1f} s: data for {low:.2f} to {high:.2f}: {why}{busy}", flush=True)

    def look(self):
        """One decision."""
        found = self.ask(LOSS)
        if not found.get("losses") or found["workers"] < self.options.workers:
            return
        loss = found["loss"]
        self.losses.append(loss)
        self.telemetry.log({"loss_of_all": loss, "loss_threshold": self.options.threshold})
        self.calm = self.calm + 1 if loss <= self.options.threshold else 0
        if self.calm or time.monotonic() - self.reacted < SETTLE_S:
            return
        at = self.ask(RANGE)
        if at.get("low") is not None and at["high"] > at["low"]:
            self.make_data(at["low"], at["high"], f"loss {loss:.4f} is above {self.options.threshold:g}")


def run(options, directory):
    build(options.mpicc, directory)
    telemetry = Telemetry()
    if not telemetry.level:
        print("telem does not answer: the controller sees nothing. Run this under `telem run`.", file=sys.stderr)
    telemetry.config(terms=TERMS, threshold=options.threshold, workers=options.workers, ranks=options.ranks)
    launcher = Launcher(options.mpicc, options.mpirun, options.ranks)
    controller = Controller(telemetry, launcher, directory, options)
    ranges = RANGES[: options.ranges]
    controller.make_data(*ranges[0], "the first")
    worker = [sys.executable, str(HERE / "worker.py")]
    workers = [subprocess.Popen([*worker, str(n), str(directory)]) for n in range(options.workers)]
    steps = int(options.seconds * 1000 / options.pause)
    observed = directory / "observed.bin"
    arguments = [TERMS, steps, options.pause, observed, *(f"{low}:{high}" for low, high in ranges)]
    simulation = launcher.start(directory / "taylor", *arguments)
    until = time.monotonic() + 3 * options.seconds
    try:
        while simulation.poll() is None and time.monotonic() < until and not controller.is_over(steps):
            time.sleep(WATCH_S)
            controller.look()
    finally:
        (directory / "stop").touch()
        (directory / "observed.bin.end").touch()
        try:
            codes = [process.wait(timeout=options.seconds + 60) for process in [simulation, *workers]]
        except subprocess.TimeoutExpired:
            for process in [simulation, *workers]:
                process.kill()
            raise
    last = controller.losses[-1] if controller.losses else float("nan")
    print(f"{controller.files - 1} reactions; the last loss is {last:.5f}", flush=True)
    telemetry.finalize()
    return 1 if any(codes) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the simulation takes for its ranges [%(default)s]")
    parser.add_argument("--workers", type=int, default=2, help="processes that learn [%(default)s]")
    parser.add_argument("--ranks", type=int, default=2, help="processes of each job of MPI [%(default)s]")
    parser.add_argument("--threshold", type=float, default=0.005, help="the loss above which data are made [%(default)s]")
    parser.add_argument("--samples", type=int, default=4000, help="pairs of x and y that are made at a time [%(default)s]")
    parser.add_argument("--ranges", type=int, default=len(RANGES), choices=range(1, len(RANGES) + 1), help="ranges of the simulation [%(default)s]")
    parser.add_argument("--pause", type=int, default=100, help="milliseconds between two steps of the simulation [%(default)s]")
    parser.add_argument("--mpicc", default="mpicc", help="the compiler wrapper of MPI [%(default)s]")
    parser.add_argument("--mpirun", help="its launcher [default: the one beside it]")
    parser.add_argument("--small", action="store_true", help="two ranges in twelve seconds")
    options = parser.parse_args()
    if options.small:
        options.seconds, options.ranges = min(options.seconds, 12.0), min(options.ranges, 2)
    if min(options.workers, options.ranks, options.samples, options.pause) < 1 or options.seconds <= 0:
        parser.error("all of these numbers are above 0")
    try:
        import numpy  # noqa: F401
    except ImportError:
        sys.exit("the workers need NumPy: pip install numpy")
    if not shutil.which(options.mpicc):
        sys.exit(f"{options.mpicc} is not on PATH: load your MPI's module, or name one with --mpicc")
    with tempfile.TemporaryDirectory(prefix="ai-in-the-loop-", dir=options_directory()) as directory:
        return run(options, pathlib.Path(directory))


def options_directory():
    """Where all nodes of a job see it: beside what is saved, else where the job was started."""
    saved = os.environ.get("TELEM_SAVED")
    return str(pathlib.Path(saved).parent) if saved else os.getcwd()


if __name__ == "__main__":
    sys.exit(main())
