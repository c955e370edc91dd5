#!/usr/bin/env python3
"""What logging costs the job: `add_data` of the Python client, from 1 process and from many, into a real server.

    benches/client.py [--telem target/release/telem] [--points 50000] [--processes 64] [--client DIR]

`--client` is a directory with the package, such as one with the compiled core: `pip install --target DIR ./clients/python`.

Prints points a second and CPU microseconds a point: of the calling thread alone (what the loop feels), of the whole
process with its background thread, and of the server. Dragon's own `add_data` was measured at 68 to 99 points a
second from any number of processes and 2,900 CPU microseconds a point, on two cores.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

CLIENT = pathlib.Path(__file__).resolve().parents[1] / "clients" / "python"

# One process: logs in a tight loop (`rate` 0), or so many points a second as a training loop does.
PROCESS = """
import json, sys, time
from telem import Telemetry
count, rate = int(sys.argv[1]), float(sys.argv[2])
telemetry = Telemetry()
def loop(count, call):
    # CPU seconds of this thread and of this process.
    began, cpu, own = time.monotonic(), time.process_time(), time.thread_time()
    for number in range(count):
        call("bench", number * 0.5)
        if rate:
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
    own = time.thread_time() - own
    telemetry.flush(300)
    return own, time.process_time() - cpu

# The loop itself costs something too, above all where it sleeps.
empty = loop(count if not rate else 200, lambda name, value: None)
scale = 1 if not rate else count / 200
print("ready", flush=True)
sys.stdin.readline()
own, cpu = loop(count, telemetry.add_data)
print(json.dumps({"own_s": own - empty[0] * scale, "cpu_s": cpu - empty[1] * scale, **telemetry.stats()}), flush=True)
"""


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server, file, client, processes, points, rate):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TELEM_")}
    environment = {**clean, "TELEM_CONNECTION": file, "PYTHONPATH": client}
    command = [sys.executable, "-S", "-c", PROCESS, str(points), str(rate)]
    crowd = [
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    for one in crowd:
        assert one.stdout.readline() == "ready\n"
    before, began = cpu_seconds(server.pid), time.monotonic()
    for one in crowd:
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [json.loads(one.communicate()[0]) for one in crowd]
    took, server_cpu = time.monotonic() - began, cpu_seconds(server.pid) - before
    total = lambda name: sum(one[name] for one in said)
    logged = processes * points
    assert total("sent") + total("dropped") == logged
    pace = f"{rate:g}/s each" if rate else "tight loop"
    print(
        f"{processes:3} x {points:6} {pace:>12}: {logged / took:9.0f} points/s, CPU us a point: caller "
        f"{total('own_s') / logged * 1e6:6.1f}, process {total('cpu_s') / logged * 1e6:6.1f}, server {server_cpu / logged * 1e6:5.1f}; "
        f"dropped {total('dropped')}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--telem", default=os.environ.get("TELEM", "target/release/telem"), help="the binary [%(default)s]")
    parser.add_argument("--points", type=int, default=50_000, help="in a tight loop, of one process [%(default)s]")
    parser.add_argument("--processes", type=int, default=64, help="that log at once [%(default)s]")
    parser.add_argument("--client", default=str(CLIENT), help="where the package is [clients/python, without a core]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        data = pathlib.Path(scratch) / "db"
        command = [options.telem, "serve", "--data", str(data), "--listen", "127.0.0.1:0", "--level", "1"]
        environment = {**os.environ, "XDG_RUNTIME_DIR": scratch}
        server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            while "listening on" not in server.stderr.readline():
                assert server.poll() is None, "telem ended"
            file = str(data / "connection.json")
            measure(server, file, options.client, 1, options.points, 0)
            measure(server, file, options.client, options.processes, max(options.points // 20, 1), 0)
            measure(server, file, options.client, 1, 1_000, 100)
            measure(server, file, options.client, options.processes, 500, 50)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
