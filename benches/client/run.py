#!/usr/bin/env python3
"""What a call of the C library costs, beside prometheus_client, prometheus-cpp and OpenTelemetry, and what it carries.

    benches/client/run.py [--telem target/release/telem] [--batches 300] [--rate 1250000] [--seconds 5]

Builds the library with `make`, starts a telem on a directory of its own, and prints tables in Markdown. The Python
packages come from PyPI into a temporary environment, prometheus-cpp from Debian's archive, unpacked and not installed;
where one cannot be had the table does without it.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
C = ROOT / "clients" / "c"
THREADS = (1, 2)


def quiet(*command, **more):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def lines(*command, **more):
    return [json.loads(line) for line in quiet(*command, **more).splitlines()]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Service:
    def __init__(self, telem, folder):
        self.process = subprocess.Popen(
            [telem, "serve", "--level", "1", "--data", folder / "db", "--listen", "127.0.0.1:0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
        )
        for line in self.process.stdout:
            if "listening on" in line:
                break
        # What it says later is of no use here, and must not fill the pipe.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        self.environment = {**os.environ, "TELEM_CONNECTION": str(folder / "db" / "connection.json")}

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def build(folder):
    quiet("make", "-s", "-C", C, f"BUILD={folder}")
    for program in ("calls", "flood"):
        quiet("cc", "-std=c11", "-O2", HERE / f"{program}.c", f"-I{C / 'include'}", f"-L{folder}", "-ltelem",
              f"-Wl,-rpath,{folder}", "-pthread", "-o", folder / program)


def build_prometheus_cpp(folder):
    """The program with Debian's library, or None."""
    try:
        quiet("apt-get", "download", "prometheus-cpp-dev", "libprometheus-cpp-core1.0", cwd=folder,
              stderr=subprocess.DEVNULL)
        for package in folder.glob("*.deb"):
            quiet("dpkg", "-x", package, folder / "debian")
        (library,) = (folder / "debian").rglob("libprometheus-cpp-core.so")
        quiet("c++", "-std=c++17", "-O2", HERE / "peers.cpp", f"-I{folder / 'debian' / 'usr' / 'include'}", library,
              f"-Wl,-rpath,{library.parent}", "-pthread", "-o", folder / "peers")
        return folder / "peers"
    except (subprocess.CalledProcessError, FileNotFoundError, ValueError) as error:
        print(f"without prometheus-cpp: {error}", file=sys.stderr)
        return None


def python_with_peers(folder):
    try:
        quiet(sys.executable, "-m", "venv", folder / "venv")
        quiet(folder / "venv" / "bin" / "pip", "install", "--quiet", "prometheus_client==0.26.0",
              "opentelemetry-sdk==1.45.2")
        return folder / "venv" / "bin" / "python"
    except subprocess.CalledProcessError as error:
        print(f"without the Python packages: {error}", file=sys.stderr)
        return None


def calls(service, folder, batches):
    found = []
    prometheus_cpp, python = build_prometheus_cpp(folder), python_with_peers(folder)
    for threads in THREADS:
        found += lines(folder / "calls", threads, batches, env=service.environment)
        if prometheus_cpp:
            found += lines(prometheus_cpp, threads, batches)
        if python:
            found += lines(python, HERE / "peers.py", threads, max(batches // 5, 20))
    return found


def print_calls(found):
    own = {(one["call"], one["threads"]): one["median_ns"] for one in found if one.get("peer") == "telem C"}
    print("| call | library | 1 thread, ns | of telem's | 2 threads, ns | of telem's |")
    print("|---|---|---|---|---|---|")
    rows = {}
    for one in found:
        if "peer" in one:
            rows.setdefault((one["call"], one["peer"]), {})[one["threads"]] = one
    for (call, peer), by_threads in sorted(rows.items(), key=lambda row: (row[0][0], row[1][1]["median_ns"])):
        cells = []
        for threads in THREADS:
            median = by_threads[threads]["median_ns"]
            p90 = by_threads[threads]["p90_ns"]
            ratio = f"{median / own[call, threads]:,.1f}" if (call, threads) in own else ""
            cells += [f"{median:,.1f} (p90 {p90:,.1f})", ratio]
        print(f"| {call} | {peer} | {' | '.join(cells)} |")
    lost = [one for one in found if "lost" in one]
    print(f"\nOf {sum(one['taken'] for one in lost):,} samples {sum(one['lost'] for one in lost):,} were lost.")


def flood(service, folder, processes, rate, seconds):
    before = cpu_seconds(service.process.pid)
    command = [folder / "flood", str(rate), str(seconds)]
    running = [subprocess.Popen(command, env=service.environment, stdout=subprocess.PIPE, text=True)
               for _ in range(processes)]
    found = [json.loads(process.communicate()[0]) for process in running]
    server = cpu_seconds(service.process.pid) - before
    taken, stored = sum(one["taken"] for one in found), sum(one["stored"] for one in found)
    slowest = max(one["stored_s"] for one in found)
    clients = sum(one["cpu_s"] for one in found)
    print(f"| {processes} | {rate:,} | {taken:,} | {taken - stored:,} | {stored / slowest / 1e6:.2f} | "
          f"{clients / taken * 1e6:.3f} | {server / stored * 1e6:.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--telem", default=str(ROOT / "target" / "release" / "telem"))
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--rate", type=int, default=1_250_000, help="samples a second of each of 4 processes")
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)
    with tempfile.TemporaryDirectory() as named:
        folder = pathlib.Path(named)
        build(folder)
        service = Service(options.telem, folder)
        try:
            print_calls(calls(service, folder, options.batches))
            print("\n| processes | samples a second each | taken | lost | stored, millions a second "
                  "| CPU s of the clients a million | CPU s of the service a million |")
            print("|---|---|---|---|---|---|---|")
            for rate in (100_000, options.rate // 4, options.rate):
                flood(service, folder, 4, rate, options.seconds)
        finally:
            service.end()
    print(f"\nLoad average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.")


if __name__ == "__main__":
    main()
