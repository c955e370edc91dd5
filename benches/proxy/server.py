#!/usr/bin/env python3
"""What a server of Metric Proxy's clients costs: telem, beside the original where it is there.

    benches/proxy/server.py TELEM [ORIGINAL] [--quick]

TELEM and ORIGINAL are the two binaries. Both get the same bytes over their Unix socket and the same requests, one
after the other; processor time is what the kernel counted for the server's process. A row is what was measured, and
telem's share of the original's figure. --quick takes a tenth of everything, to see whether it works here.
"""

import argparse
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

PATIENCE_S = 300
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
WRITE_BYTES = 1 << 20


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Proxy:
    """A server of one of the two kinds, on a directory that outlives it."""

    def __init__(self, kind, binary, folder, period_ms=1000):
        self.kind, self.binary, self.folder = kind, binary, pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.path = str(self.folder / "s")
        pathlib.Path(self.path).unlink(missing_ok=True)
        self.data = self.folder / "data"
        self.data.mkdir(exist_ok=True)
        self.port = free_port()
        command = [binary, *(["proxy"] if kind == "telem" else []), "-p", self.port, "-u", self.path, "-t", self.data, "-S", period_ms]
        if kind == "telem":
            command += ["--listen", "127.0.0.1:0"]
        began = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env={**os.environ, "XDG_RUNTIME_DIR": str(self.folder), "HOME": str(self.folder)})
        self.await_that(lambda: self.jobs() is not None)
        self.start_s = time.monotonic() - began

    def await_that(self, condition, pause_s=0.005):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            began = time.monotonic()
            try:
                if condition():
                    return
            except (OSError, http.client.HTTPException):
                pass
            now = time.monotonic()
            assert now < deadline and self.process.poll() is None, f"{self.kind} does not answer"
            # Asking is not to keep the server from what is waited for.
            time.sleep(max(pause_s, 2 * (now - began)))

    def ask(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, path):
        status, body = self.ask(path)
        assert status == 200, (path, status, body[:200])
        return body

    def jobs(self):
        return [job["jobid"] for job in json.loads(self.get("/job/list"))]

    def finished(self):
        return len(json.loads(self.get("/profiles")))

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def resident_mb(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE / 1e6

    def connect(self, job=None):
        client = socket.socket(socket.AF_UNIX)
        client.connect(self.path)
        if job:
            client.sendall(message("JobDesc", {"jobid": job, "command": "./bench", "size": 4, "nodelist": "", "partition": "",
                                               "cluster": "", "run_dir": "/", "start_time": int(time.time()), "end_time": 0}))
        return client

    def counter(self, name, job):
        """The value of a counter of a job, or None."""
        status, body = self.ask(f"/job/?job={job}")
        for counter in json.loads(body)["counters"] if status == 200 else []:
            if counter["name"] == name:
                return counter["ctype"]["Counter"]["value"]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def message(kind, value):
    return json.dumps({kind: value}, separators=(",", ":")).encode() + b"\0"


def declared(names):
    return b"".join(message("Desc", {"name": name, "doc": "a counter", "ctype": {"Counter": {"ts": 0, "value": 0.0}}}) for name in names)


def updates(names, value=1.0):
    stamp = time.time_ns() // 1000
    return b"".join(message("Value", {"name": name, "value": {"Counter": {"ts": stamp, "value": value}}}) for name in names)


def send(client, data):
    for at in range(0, len(data), WRITE_BYTES):
        client.sendall(data[at : at + WRITE_BYTES])


def names_of(count):
    return [f'bench_{i}_total' for i in range(count)]


def microseconds_an_update(proxy, count, total):
    names = names_of(count)
    client = proxy.connect("updates")
    send(client, declared(names))
    rounds = max(1, total // count)
    batch = updates(names)
    many = batch * max(1, min(rounds, WRITE_BYTES * 4 // len(batch)))
    each = len(many) // len(batch)
    send(client, batch)
    proxy.await_that(lambda: proxy.counter(names[-1], "updates") == 1.0)
    before = proxy.cpu_s()
    sent = 0
    while sent < rounds:
        send(client, many)
        sent += each
    # The last counter is the last that a round sends: once it has arrived all have. Asked rarely, as asking costs.
    proxy.await_that(lambda: proxy.counter(names[-1], "updates") == 1.0 + sent, pause_s=0.2)
    used = proxy.cpu_s() - before
    client.close()
    return used / (sent * count) * 1e6


def row_updates(proxy, scale):
    return {"update, 100 counters, CPU us": microseconds_an_update(proxy, 100, 3_000_000 // scale)}


def row_many_updates(proxy, scale):
    return {"update, 10,000 counters, CPU us": microseconds_an_update(proxy, 10_000, 1_000_000 // scale)}


# So many make a figure that is twice the same within a tenth.
REQUESTS = 20


def row_many_counters(proxy, scale):
    """100,000 counters of one job: what it costs to have them, to ask for them, and the job's end."""
    names = names_of(100_000 // scale)
    client = proxy.connect("many")
    send(client, declared(names))
    send(client, updates(names))
    proxy.await_that(lambda: proxy.counter(names[-1], "many") == 1.0)
    time.sleep(5)
    begin, before = time.monotonic(), proxy.cpu_s()
    time.sleep(20)
    found = {
        "100,000 counters: idle CPU, %": (proxy.cpu_s() - before) / (time.monotonic() - begin) * 100,
        "100,000 counters: RSS after 20 s, MB": proxy.resident_mb(),
    }
    for path in ("/job", "/metrics"):
        before, begin = proxy.cpu_s(), time.monotonic()
        for _ in range(REQUESTS):
            proxy.get(path)
        found[f"100,000 counters: {path}, wall ms"] = (time.monotonic() - begin) / REQUESTS * 1e3
        found[f"100,000 counters: {path}, CPU ms"] = (proxy.cpu_s() - before) / REQUESTS * 1e3
    longest, over = [0.0], threading.Event()

    def poll(path):
        while not over.is_set():
            began = time.monotonic()
            proxy.get(path)
            longest[0] = max(longest[0], time.monotonic() - began)
            time.sleep(0.002)

    threads = [threading.Thread(target=poll, args=(path,)) for path in ("/job/list", "/alarms", "/profiles", "/join/list")]
    for thread in threads:
        thread.start()
    time.sleep(1)
    quiet, longest[0] = longest[0], 0.0
    client.close()
    proxy.await_that(lambda: proxy.finished() >= 1)
    time.sleep(1)
    over.set()
    for thread in threads:
        thread.join()
    found["100,000 counters: longest wait before the job's end, ms"] = quiet * 1e3
    found["100,000 counters: longest wait at the job's end, ms"] = longest[0] * 1e3
    return found


def row_trace(proxy, scale):
    """1,000 counters that change by another amount each period."""
    names, periods = names_of(1000), max(10, 100 // scale)
    client = proxy.connect("trace")
    send(client, declared(names))
    begin = time.monotonic()
    for period in range(periods):
        send(client, b"".join(updates([name], (period * 7 + i * 13) % 97 + 1.0) for i, name in enumerate(names)))
        time.sleep(max(0.0, begin + (period + 1) * 0.1 - time.monotonic()))
    client.close()
    proxy.await_that(lambda: proxy.finished() >= 1)
    points = len(json.loads(proxy.get(f"/trace/plot?jobid=trace&filter={names[0]}")))
    proxy.stop()
    if proxy.kind == "telem":
        question = "SELECT count(*) FROM samples WHERE metric LIKE 'bench_%'"
        answer = subprocess.run([proxy.binary, "sql", proxy.data, question, "--format", "csv"], capture_output=True, text=True, check=True)
        samples, pattern = int(answer.stdout.split()[-1]), "*.parquet"
    else:
        samples, pattern = points * len(names), "trace.trace"
    files = [file for file in proxy.data.rglob(pattern) if file.is_file()]
    assert files, f"no file is like {pattern}"
    return {"bytes a sample of a trace": sum(file.stat().st_size for file in files) / samples, "points of one trace": points}


def row_labels(proxy, scale):
    """10,000 counters that differ in a label alone: the whole trace of their job."""
    names = [f'bench_total{{n="{i}"}}' for i in range(10_000 // scale)]
    client = proxy.connect("labels")
    send(client, declared(names) + updates(names))
    proxy.await_that(lambda: proxy.counter(names[-1], "labels") == 1.0)
    # Until they have samples.
    time.sleep(2.5)
    before, begin = proxy.cpu_s(), time.monotonic()
    for _ in range(3):
        proxy.get("/trace/json?jobid=labels")
    found = {
        "whole trace of 10,000 counters, wall ms": (time.monotonic() - begin) / 3 * 1e3,
        "whole trace of 10,000 counters, CPU ms": (proxy.cpu_s() - before) / 3 * 1e3,
    }
    client.close()
    return found


def row_finished(proxy, scale):
    jobs, names = 200 // scale, names_of(100)
    # Both look at their node once a second.
    time.sleep(2.5)
    before = proxy.resident_mb()
    for job in range(jobs):
        client = proxy.connect(f"finished-{job}")
        send(client, declared(names) + updates(names))
        proxy.await_that(lambda: proxy.counter(names[-1], f"finished-{job}") == 1.0)
        client.close()
    proxy.await_that(lambda: proxy.finished() >= jobs)
    time.sleep(2)
    grown = proxy.resident_mb() - before
    proxy.stop()
    again = Proxy(proxy.kind, proxy.binary, proxy.folder)
    assert again.finished() >= jobs
    again.stop()
    return {"200 finished jobs: growth, MB": grown, "200 finished jobs: start, s": again.start_s}


ROWS = {"updates": row_updates, "many-updates": row_many_updates, "many": row_many_counters, "trace": row_trace, "labels": row_labels, "finished": row_finished}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("telem", type=pathlib.Path)
    arguments.add_argument("original", nargs="?", type=pathlib.Path)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    asked = arguments.parse_args()
    kinds = {"telem": asked.telem, **({"original": asked.original} if asked.original else {})}
    scale = 10 if asked.quick else 1
    for row in asked.rows:
        figures = {}
        for kind, binary in kinds.items():
            folder = tempfile.mkdtemp(prefix=f"proxy-{kind}-")
            proxy = Proxy(kind, binary, folder, 100 if row == "trace" else 1000)
            try:
                for what, number in ROWS[row](proxy, scale).items():
                    figures.setdefault(what, {})[kind] = number
            finally:
                proxy.stop()
                shutil.rmtree(folder, ignore_errors=True)
        for what, found in figures.items():
            share = f"{found['telem'] / found['original']:.2f}x" if found.get("original") else ""
            print(what, *(f"{kind} {number:.3f}" for kind, number in found.items()), share, sep="\t", flush=True)


if __name__ == "__main__":
    main()
