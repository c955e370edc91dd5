#!/usr/bin/env python3
"""How many samples a second a server takes over the client protocol, and what they cost it, beside line protocol.

    benches/frames.py [--telem target/release/telem] [--processes 4] [--samples 5000000] [--series 100]

Each process has all its frames ready before the clock runs: columns of `--column` samples, `--series` series, two of
three of floats with two decimals and one of integers that grow. It sends them as fast as they are taken. The same
samples, fewer of them, go as lines of text over the same socket. Then every sample is counted by SQL.

Prints samples a second until the last acknowledgement, and CPU seconds of the server a million samples: until then, and
until the server has ended, with everything in files.
"""

import argparse
import array
import http.client
import json
import os
import pathlib
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ME = str(pathlib.Path(__file__).resolve())


def text(value):
    value = value.encode()
    return struct.pack("<H", len(value)) + value


def frame(kind, body):
    return struct.pack("<IBxxx", len(body), kind) + body


def values(number, length, generator):
    """A metric of a program: a noisy level, or a counter."""
    if number % 3 == 2:
        return array.array("q", (number * 1000 + at * 7 for at in range(length)))
    return array.array("d", (round(50 + number + generator.random() * 10, 2) for _ in range(length)))


def make(process, samples, series, column):
    """The frames of one process, and as many samples as they hold."""
    generator, now = random.Random(process), time.time_ns() // 1000 - 600_000_000
    names = b"".join(
        struct.pack("<BBH", 1 if number % 3 == 2 else 0, 1, 2)
        + text(f"bench_{number % 10}") + text("") + text("")
        + text("process") + text(str(process)) + text("part") + text(str(number))
        for number in range(series)
    )
    yield 0, frame(1, struct.pack("<II", 0, series) + names)
    columns = {number: values(number, column, generator) for number in range(series)}
    per_frame = max(1, min(series, 60_000 // column))
    made, sequence, at = 0, 0, now
    while made < samples:
        times = array.array("q", range(at, at + 80 * column, 80)).tobytes()
        for first in range(0, series, per_frame):
            blocks = [
                struct.pack("<BBHIII", 0, int(number % 3 == 2), 0, number, column, 0) + times + columns[number].tobytes()
                for number in range(first, min(first + per_frame, series))
            ]
            sequence += 1
            made += column * len(blocks)
            yield column * len(blocks), frame(2, struct.pack("<Q", sequence) + b"".join(blocks))
        at += 80 * column


def lines(process, samples, series, column):
    """The same as bodies of line protocol."""
    generator, now = random.Random(process), time.time_ns() // 1000 - 600_000_000
    columns = {number: values(number, column, generator) for number in range(series)}
    made, at = 0, now
    while made < samples:
        for number in range(series):
            kind = "i" if number % 3 == 2 else ""
            name = f"bench_{number % 10},process={process},part={number} value="
            yield column, "\n".join(
                f"{name}{value}{kind} {(at + 80 * place) * 1000}" for place, value in enumerate(columns[number])
            ).encode()
            made += column
        at += 80 * column


def send_frames(path, ready):
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    server.sendall(b"\xf7TLM" + struct.pack("<HH", 1, 0))
    stored = [0, 0]
    total = sum(count for count, _ in ready)
    reader = server.makefile("rb")

    def acknowledged():
        while sum(stored) < total:
            length, kind = struct.unpack("<IBxxx", reader.read(8))
            body = reader.read(length)
            if kind == 129:
                stored[:] = struct.unpack("<8xQQ", body)
            elif kind >= 130:
                print(kind, body, file=sys.stderr)

    thread = threading.Thread(target=acknowledged)
    thread.start()
    for _, one in ready:
        server.sendall(one)
    thread.join()
    return stored[0]


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def send_lines(path, ready):
    connection, stored = UnixConnection(path), 0
    for count, body in ready:
        while True:
            connection.request("POST", "/write", body)
            response = connection.getresponse()
            response.read()
            if response.status != 503:
                break
            time.sleep(0.01)
        assert response.status == 204, response.status
        stored += count
    return stored


def process(how, path, number, samples, series, column):
    make_all, send = (make, send_frames) if how == "frames" else (lines, send_lines)
    ready = list(make_all(int(number), int(samples), int(series), int(column)))
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.process_time()
    stored = send(path, ready)
    print(json.dumps({"stored": stored, "cpu_s": time.process_time() - began}), flush=True)


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def measure(options, how, samples, scratch):
    data = scratch / how
    command = [options.telem, "serve", "--data", str(data), "--listen", "127.0.0.1:0", "--level", "1"]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(scratch)}
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while "listening on" not in server.stderr.readline():
        assert server.poll() is None, "telem ended"
    path = json.loads((data / "connection.json").read_text())["socket"]
    crowd = [
        subprocess.Popen(
            [sys.executable, "-S", ME, "--process", how, path, str(number), str(samples), str(options.series),
             str(options.column)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(options.processes)
    ]
    for one in crowd:
        assert one.stdout.readline() == "ready\n"
    before, began = cpu_seconds(server.pid), time.monotonic()
    for one in crowd:
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [json.loads(one.communicate()[0]) for one in crowd]
    took, cpu, peak = time.monotonic() - began, cpu_seconds(server.pid) - before, peak_bytes(server.pid)
    stored, clients = sum(one["stored"] for one in said), sum(one["cpu_s"] for one in said)
    connection = UnixConnection(path)
    connection.request("POST", "/api/sql?format=csv", "SELECT count(*) AS n FROM samples")
    counted = int(connection.getresponse().read().split()[1])
    connection.close()
    server.terminate()
    pid, _, usage = os.wait4(server.pid, 0)
    whole = usage.ru_utime + usage.ru_stime - before
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    assert counted == stored, f"{counted} counted, {stored} acknowledged"
    millions = stored / 1e6
    print(
        f"{how:6} {options.processes} processes, {stored:9} samples: {stored / took / 1e6:6.2f} M samples/s; CPU s a "
        f"million: server {cpu / millions:5.3f}, until it ended {whole / millions:5.3f}, clients "
        f"{clients / millions:5.3f}; peak {peak >> 20} MiB; {size / stored:4.2f} bytes a sample in files",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--telem", default=os.environ.get("TELEM", "target/release/telem"), help="the binary [%(default)s]")
    parser.add_argument("--processes", type=int, default=4, help="that send at once [%(default)s]")
    parser.add_argument("--samples", type=int, default=5_000_000, help="of one process [%(default)s]")
    parser.add_argument("--series", type=int, default=100, help="of one process [%(default)s]")
    parser.add_argument("--column", type=int, default=500, help="samples of a series in a block [%(default)s]")
    parser.add_argument("--lines-share", type=int, default=10, help="one of so many goes as lines, too [%(default)s]")
    parser.add_argument("--process", nargs=6, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process:
        return process(*options.process)
    with tempfile.TemporaryDirectory() as scratch:
        measure(options, "frames", options.samples, pathlib.Path(scratch))
        if options.lines_share:
            measure(options, "lines", options.samples // options.lines_share, pathlib.Path(scratch))


if __name__ == "__main__":
    main()
