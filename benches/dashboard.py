#!/usr/bin/env python3
"""What the small questions of a dashboard cost: processor and wall time each, of one telem or of several by turns.

    benches/dashboard.py TELEM [TELEM...] [--rounds 3] [--questions 300]

The data is as in TSBS' case cpu-only: 400 hosts with 10 metrics each and 10 tags, every 10 s for 3 h, made anew with a
fixed seed, merged and served by `telem replay`. The questions are as in TSBS too, with hosts and times drawn at random:
single-groupby-HOSTS-METRICS-HOURS, the hourly maxima of all metrics of 8 hosts, the raw samples of one host, and the
hourly averages of every host. Processor time is what the kernel counted for all threads of the server. All binaries
must give the same answers.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import re
import subprocess
import tempfile
import threading
import time

HOSTS, STEPS, STEP_S, START = 400, 1_080, 10, 1_451_606_400
METRICS = ["user", "system", "idle", "nice", "iowait", "irq", "softirq", "steal", "guest", "guest_nice"]
LINES_A_REQUEST = 2_000


def lines():
    """Samples in InfluxDB's line protocol, all hosts of a step together."""
    draw = random.Random(7)
    tags, values = [], []
    for host in range(HOSTS):
        region = draw.choice(["us-east-1", "us-west-2", "eu-west-1", "eu-central-1", "ap-northeast-1", "sa-east-1"])
        tags.append(
            f"hostname=host_{host},region={region},datacenter={region}{draw.choice('abc')},rack={draw.randrange(100)}"
            f",os={draw.choice(['Ubuntu16.10', 'Ubuntu15.10'])},arch={draw.choice(['x64', 'x86'])}"
            f",team={draw.choice(['SF', 'NYC', 'LON', 'CHI'])},service={draw.randrange(20)}"
            f",service_version={draw.randrange(2)},service_environment={draw.choice(['production', 'test'])}"
        )
        values.append([draw.uniform(0, 100) for _ in METRICS])
    for step in range(STEPS):
        time_s = START + STEP_S * step
        for host in range(HOSTS):
            values[host] = [min(100, max(0, value + draw.gauss(0, 1))) for value in values[host]]
            fields = ",".join(f"usage_{name}={int(value)}i" for name, value in zip(METRICS, values[host]))
            yield f"cpu,{tags[host]} {fields} {time_s}\n"


class Server:
    """A telem that serves until it is stopped."""

    def __init__(self, telem, *arguments):
        command = [telem, *arguments, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"listening on http://([0-9.]+):(\d+)", line):
                break
        else:
            raise SystemExit(f"{telem} {arguments[0]} ended before it listened")
        # Whatever else it says is read, so that it never waits for a reader.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.connection = http.client.HTTPConnection(found[1], int(found[2]), timeout=60)

    def post(self, path, body):
        self.connection.request("POST", path, body)
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 204):
            raise SystemExit(f"{path}: {answer.status} {text[:300]}")
        return text

    def cpu_ns(self):
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def question(draw, metrics, hosts, hours, step, function="max", by_host=False):
    start = START + draw.randrange(int(3 * 3600 - hours * 3600) + 1)
    if hosts < HOSTS:
        names = "|".join(f"host_{host}" for host in draw.sample(range(HOSTS), hosts))
        matcher = {"type": "literal_or", "filter": names}
    else:
        matcher = {"type": "wildcard", "filter": "*"}
    query = {"aggregator": function, "filters": [{"tagk": "hostname", "groupBy": by_host, **matcher}]}
    if step:
        query["downsample"] = f"{step}-{function}"
    else:
        query["aggregator"] = "none"
    queries = [{"metric": f"cpu_usage_{name}", **query} for name in METRICS[:metrics]]
    return json.dumps({"start": start * 1000, "end": int((start + hours * 3600) * 1000) - 1, "queries": queries})


def kinds(count):
    """Of each kind of question its name and some of them."""
    draw = random.Random(3)
    asked = {
        "single-groupby-1-1-1": lambda: question(draw, 1, 1, 1, "1m"),
        "single-groupby-5-8-1": lambda: question(draw, 5, 8, 1, "1m"),
        "cpu-max-all-8": lambda: question(draw, 10, 8, 2.9, "1h"),
        "raw samples of a host": lambda: question(draw, 1, 1, 1, None),
        "double-groupby-1": lambda: question(draw, 1, HOSTS, 2.9, "1h", "avg", True),
        "double-groupby-all": lambda: question(draw, 10, HOSTS, 2.9, "1h", "avg", True),
    }
    return {name: [make() for _ in range(max(3, count // (20 * ("double" in name) or 1)))] for name, make in asked.items()}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("telem", nargs="+")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--questions", type=int, default=300)
    asked = arguments.parse_args()
    questions = kinds(asked.questions)
    with tempfile.TemporaryDirectory(prefix="telem-dashboard-") as folder:
        database = os.path.join(folder, "cpu")
        server = Server(asked.telem[0], "serve", "--data", database)
        waiting = []
        for line in lines():
            waiting.append(line)
            if len(waiting) == LINES_A_REQUEST:
                server.post("/write?precision=s", "".join(waiting))
                waiting.clear()
        server.post("/write?precision=s", "".join(waiting))
        server.stop()
        subprocess.run([asked.telem[0], "compact", database], check=True, stdout=subprocess.DEVNULL)
        answers = {}
        print(f"{'question':24}{'CPU ms':>9}{'wall ms':>9}{'median':>9}  of")
        for _ in range(asked.rounds):
            for telem in asked.telem:
                server = Server(telem, "replay", database)
                for name, bodies in questions.items():
                    # Files are opened and threads started before it counts.
                    found = [server.post("/api/query", body) for body in bodies[:30]]
                    if answers.setdefault(name, found) != found:
                        raise SystemExit(f"{name}: {telem} answers other than {asked.telem[0]}")
                    before, walls = server.cpu_ns(), []
                    for body in bodies:
                        began = time.perf_counter()
                        server.post("/api/query", body)
                        walls.append((time.perf_counter() - began) * 1e3)
                    cpu_ms = (server.cpu_ns() - before) / 1e6 / len(bodies)
                    walls.sort()
                    mean, median = sum(walls) / len(walls), walls[len(walls) // 2]
                    print(f"{name:24}{cpu_ms:9.3f}{mean:9.3f}{median:9.3f}  {telem}", flush=True)
                server.stop()


if __name__ == "__main__":
    main()
