#!/usr/bin/env python3
"""What `telem run --mpi-profile` costs a call of MPI: a program with it and without, in turns, and the medians of both.

    python3 benches/mpi/run.py --telem target/release/telem --mpi mpich openmpi --turns 7

Both runs are under `telem run`, so that the wrapper alone makes the difference.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Calls of the process that measures in what is measured; of a ping-pong those of both processes are on the way.
CALLS = {"iprobe": 1, "send_to_nobody": 1, "sendrecv_to_itself": 1, "ping_pong": 4}
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


def measured(telem, mpi, program, directory, is_profiled):
    option = [f"--mpi-profile=mpicc.{mpi}"] if is_profiled else []
    command = [telem, "-q", "run", "--level", "1", "--listen", "127.0.0.1:0", "--no-save", *option, "--"]
    done = subprocess.run(
        [*command, f"mpirun.{mpi}", "-n", "2", str(program)], cwd=directory, capture_output=True, text=True, check=True,
        env={**os.environ, **ALLOWED}, timeout=300,
    )
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--telem", default="telem", help="the binary [%(default)s]")
    parser.add_argument("--mpi", nargs="+", default=["mpich", "openmpi"], help="endings of mpicc and mpirun [%(default)s]")
    parser.add_argument("--turns", type=int, default=7, help="runs of each kind [%(default)s]")
    options = parser.parse_args()
    telem = str(pathlib.Path(options.telem).resolve()) if "/" in options.telem else options.telem
    print("| | without: ns | with: ns | a call more: ns |\n|---|---|---|---|")
    for mpi in options.mpi:
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "calls"
            subprocess.run([f"mpicc.{mpi}", "-O2", "-o", str(program), str(HERE / "calls.c")], check=True)
            found = {False: [], True: []}
            for turn in range(2 * options.turns):
                found[turn % 2 == 1].append(measured(telem, mpi, program, directory, turn % 2 == 1))
            for name, calls in CALLS.items():
                without, profiled = (statistics.median(run[name] for run in found[kind]) for kind in (False, True))
                more = (profiled - without) / calls
                print(f"| {mpi}: {name.replace('_', ' ')} | {without:.0f} | {profiled:.0f} | {more:.0f} |")


if __name__ == "__main__":
    main()
