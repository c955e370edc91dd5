#!/usr/bin/env python3
"""What Metric Proxy's client library costs, beside ours: counter_inc, gauge_set, counter_new, and a flush.

    benches/proxy/client.py [ORIGINAL] [--turns N] [--values N]

ORIGINAL is a directory with libproxyclient.so; without it only ours is measured. Both run the same program against the
same recording server, in turns; nanoseconds are those of processors, the best of many short loops. Then the tracer of
system calls, beside strace itself, where that is installed.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "py"))
from proxy_recorder import Recorder  # noqa: E402

PROXY = ROOT / "clients" / "proxy"


def measured(program, library, values):
    """The figures that one process prints."""
    server = Recorder()
    process = subprocess.Popen([program, "cost", str(values)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True,
                               env={**os.environ, "PROXY_PATH": server.path, "PROXY_PERIOD": "3600000",
                                    "LD_LIBRARY_PATH": str(library)})
    found = {}
    for line in process.stdout:
        if line == "declared\n":
            last = 'number=\\"%d\\"' % (values - 1)
            server.await_bytes(last.encode())
            process.stdin.write("\n")
            process.stdin.flush()
        elif len(line.split()) == 2:
            name, number = line.split()
            found[name] = float(number)
    assert process.wait() == 0
    server.go_away()
    return found


def seconds(command, path):
    """Of processors, for the command and whoever traces it."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**os.environ, "PROXY_PATH": path})
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("original", nargs="?")
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--values", type=int, default=10000)
    asked = arguments.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="proxy-bench"))
    subprocess.run(["make", "-s", "-C", PROXY, f"BUILD={folder}", "MPICC=no-such-mpicc"], check=True)
    program = folder / "scenario"
    subprocess.run(["cc", "-O2", PROXY / "tests" / "scenario.c", f"-I{PROXY / 'include'}", f"-L{folder}", "-lproxyclient",
                    "-pthread", "-o", program], check=True)
    libraries = {"ours": folder, **({"original": pathlib.Path(asked.original)} if asked.original else {})}
    rows = {}
    for _ in range(asked.turns):
        for name, library in libraries.items():
            for what, number in measured(program, library, asked.values).items():
                rows.setdefault(what, {}).setdefault(name, []).append(number)
    for what, found in rows.items():
        pick = min if what.endswith("_ns") else statistics.median
        print(what, *(f"{name} {pick(numbers):.3f} ({min(numbers):.3f} to {max(numbers):.3f})" for name, numbers in
                      found.items()), sep="\t")
    server = Recorder()
    listing = ["ls", "-R", "/usr/share"]
    ways = {"bare": listing, "ours": [folder / "proxy_exporter_strace", "--", *listing], **({"strace -f -c": ["strace", "-f", "-c", *listing]} if shutil.which("strace") else {})}
    times = {name: [] for name in ways}
    for _ in range(asked.turns):
        for name, command in ways.items():
            times[name].append(seconds(command, server.path))
    for name, found in times.items():
        print(f"ls -R /usr/share, {name}", f"{statistics.median(found):.3f} s of processors", sep="\t")
    server.go_away()


if __name__ == "__main__":
    main()
