#!/usr/bin/env python3
"""telem and Dragon Telemetry beside each other in one run: sending points, drawing panels, memory and bytes.

Needs `dragonhpc[telemetry]` in the Python that runs it (`tests/py/requirements-dragon.txt`) and a binary of telem:

    python benches/dragon/run.py --telem ~/.cache/telem/target/quick/telem --out figures.json

Dragon's side is its own code: the class `Telemetry`, the server of its nodes (gunicorn with its Flask application and
SQLite), and for panels the method of its node that answers a query, without the HTTP server and the queues of Dragon's
runtime around it, which cost more. telem's answers include HTTP. Every answer of telem is checked against the points.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "clients" / "python"))
TICKS = os.sysconf("SC_CLK_TCK")
DEADLINE_S = 60
GPUS = 4


class Flag:
    """An event that pickles, as Dragon's own does: its server keeps it in the database."""

    def set(self):
        pass

    def is_set(self):
        return False


def tree(pid):
    """The process and all below it."""
    found, left = [], [pid]
    while left:
        at = left.pop()
        found.append(at)
        for task in pathlib.Path(f"/proc/{at}/task").glob("*/children"):
            left += [int(child) for child in task.read_text().split()]
    return found


def cpu_s(pid):
    total = 0
    for one in tree(pid):
        fields = pathlib.Path(f"/proc/{one}/stat").read_text().rsplit(") ", 1)[1].split()
        total += sum(int(field) for field in fields[11:15])
    return total / TICKS


def memory_mb(pid):
    """Shared pages counted once."""
    total = 0
    for one in tree(pid):
        for line in pathlib.Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def until(what, done):
    deadline = time.monotonic() + DEADLINE_S
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} took more than {DEADLINE_S} s")
        time.sleep(0.05)


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=5).status == 200
    except OSError:
        return False


def free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def serve_dragon(port, directory):
    """Dragon's node server; does not return."""
    import gunicorn.app.base

    from dragon.telemetry import tsdb_server

    load = gunicorn.app.base.BaseApplication.run

    def in_front(application):
        # As Dragon sets it up, but for going to the background.
        application.cfg.set("daemon", False)
        load(application)

    gunicorn.app.base.BaseApplication.run = in_front
    config = {"tsdb_server_port": str(port), "default_tmdb_dir": directory, "delete_tmdb": 0}
    tsdb_server.tsdb(Flag(), Flag(), config)


class Dragon:
    name = "Dragon's server"

    def __init__(self, place):
        self.place, self.port = place, free_port()
        place.mkdir(parents=True)
        yaml = place / "server.yaml"
        yaml.write_text(f"default_tmdb_dir: {place}\n")
        me = [sys.executable, __file__, "--serve-dragon", str(self.port), str(place)]
        environment = {**os.environ, "DRAGON_TELEMETRY_CONFIG": str(yaml)}
        self.process = subprocess.Popen(me, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        until("the start of Dragon's server", lambda: answers(f"http://localhost:{self.port}/api/ready"))
        self.environment = {}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)

    def stored(self):
        (file,) = self.place.glob("ts_*.db")
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM datapoints").fetchone()[0], file.stat().st_size


class Telem:
    name = "telem"

    def __init__(self, place, binary):
        self.place, self.binary, self.port = place, binary, free_port()
        place.mkdir(parents=True)
        yaml = place / "dragon.yaml"
        yaml.write_text(f"tsdb_server_port: {self.port}\n")
        options = ["serve", "--data", place / "db", "--listen", "127.0.0.1:0", "--dragon", "--telemetry-config", yaml]
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(place)}
        self.process = subprocess.Popen([binary, *options], stderr=subprocess.DEVNULL, env=environment)
        connection = place / "db" / "connection.json"
        until("the start of telem", lambda: connection.exists() and answers(f"http://localhost:{self.port}/api/ready"))
        self.connection = json.loads(connection.read_text())
        self.environment = {"TELEM_CONNECTION": str(connection)}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)

    def stored(self):
        subprocess.run([self.binary, "compact", self.place / "db"], check=True, capture_output=True)
        told = subprocess.run([self.binary, "info", "--json", self.place / "db"], check=True, capture_output=True)
        info = json.loads(told.stdout)
        return info["samples"], info["bytes"]


def send(which, config, environment, seconds, counts):
    """One process that logs as fast as it can."""
    os.environ.update(environment)
    os.environ.update({"DRAGON_TELEMETRY_LEVEL": "2", "DRAGON_TELEMETRY_CONFIG": config})
    if which == "Dragon's class":
        from dragon.telemetry import Telemetry
    else:
        from telem.dragon import Telemetry
    telemetry = Telemetry(telem_cfg=config) if which == "Dragon's class" else Telemetry()
    rank, sent, until_then = os.getpid(), 0, time.monotonic() + seconds
    while time.monotonic() < until_then:
        for _ in range(20):
            telemetry.add_data("loss", sent * 0.25, None, 1, "rank", rank)
            sent += 1
        if which != "Dragon's class":
            # A loop that computes nothing would fill any queue.
            time.sleep(0.0005)
    if which != "Dragon's class":
        telemetry.finalize()
    counts.put(sent)


def sending(server, which, processes, seconds):
    config = server.place / "class.yaml"
    config.write_text(f"tsdb_server_port: '{server.port}'\n")
    context = multiprocessing.get_context("fork")
    counts = context.Queue()
    before, own = cpu_s(server.process.pid), resource.getrusage(resource.RUSAGE_CHILDREN)
    stored_before = sum_of(server)
    began = time.monotonic()
    arguments = (which, str(config), server.environment, seconds, counts)
    workers = [context.Process(target=send, args=arguments) for _ in range(processes)]
    for worker in workers:
        worker.start()
    sent = sum(counts.get(timeout=seconds + DEADLINE_S) for _ in workers)
    for worker in workers:
        worker.join()
    wall = time.monotonic() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    client = after.ru_utime + after.ru_stime - own.ru_utime - own.ru_stime
    return {
        "class": which, "server": server.name, "processes": processes, "points": sent, "points_per_s": sent / wall,
        "client_us": client / sent * 1e6, "server_us": (cpu_s(server.process.pid) - before) / sent * 1e6,
        "server_mb": memory_mb(server.process.pid), "kept": sum_of(server) - stored_before,
    }


def sum_of(server):
    """Points that the server has now."""
    if isinstance(server, Dragon):
        return server.stored()[0]
    sql = urllib.request.Request(f"{server.connection['url']}/api/sql?format=csv", b"SELECT count(*) FROM samples",
                                 {"Authorization": f"Bearer {server.connection['token']}"})
    return int(urllib.request.urlopen(sql, timeout=DEADLINE_S).read().split()[-1])


PANELS = {
    "load_average": [{"filter": "*", "groupBy": False, "tagk": "host", "type": "wildcard"}],
    "DeviceUtilization": [{"filter": "*", "groupBy": False, "tagk": tag, "type": "wildcard"} for tag in ("host", "gpu")],
    "iteration_time": [{"filter": "*", "groupBy": False, "tagk": tag, "type": "wildcard"} for tag in ("host", "rank")],
}


def rows(metric, count, begin):
    """Points of one metric, one a second and series, as Dragon stores them."""
    tag = {"load_average": None, "DeviceUtilization": "gpu", "iteration_time": "rank"}[metric]
    series = GPUS if tag else 1
    host = os.uname().nodename
    for at in range(count):
        # Dragon finds nothing without a tag where one is asked for; its own collector writes host.
        tags = {"host": host} if tag is None else {tag: at % series}
        yield metric, begin + at // series, (at * 7919 % 1000) / 10, tags


def question(metric, begin, end):
    step = max(1, (end - begin) // 1000)
    query = {"aggregator": "sum", "downsample": f"{step}s-avg", "filters": PANELS[metric], "metric": metric}
    return {"start": begin * 1000, "end": end * 1000, "queries": [query], "msResolution": False, "showQuery": True}


def dragon_panels(place, count, repeats):
    from dragon.telemetry.dragon_server import DragonServer

    place.mkdir(parents=True)
    db = sqlite3.connect(place / "ts_x_y.db")
    db.execute("CREATE TABLE datapoints (metric varchar(50), timestamp varchar(30), value real, tags json)")
    begin = int(time.time()) - count - 10
    for metric in PANELS:
        values = ((m, t, v, json.dumps(tags)) for m, t, v, tags in rows(metric, count, begin))
        db.executemany("INSERT INTO datapoints VALUES (?, ?, ?, ?)", values)
    db.commit()
    node = DragonServer.__new__(DragonServer)
    node.offline_telemetry_args = None
    figures = []
    for metric in PANELS:
        asked = question(metric, begin, begin + count)
        cpu, wall = time.process_time(), time.monotonic()
        for _ in range(repeats):
            answer = json.dumps(node.query(json.loads(json.dumps(asked)), db, db.cursor()))
        figures.append({
            "server": "Dragon", "metric": metric, "points": count, "cpu_ms": (time.process_time() - cpu) / repeats * 1e3,
            "wall_ms": (time.monotonic() - wall) / repeats * 1e3, "bytes": len(answer),
        })
    return figures


def telem_panels(place, binary, count, repeats):
    server = Telem(place, binary)
    try:
        url, token = server.connection["url"], {"Authorization": f"Bearer {server.connection['token']}"}
        begin = int(time.time()) - count - 10
        host = os.uname().nodename
        for metric in PANELS:
            points = [{"metric": m, "timestamp": t, "value": v, "tags": {"host": host, **tags}}
                      for m, t, v, tags in rows(metric, count, begin)]
            for at in range(0, count, 20_000):
                body = json.dumps(points[at:at + 20_000]).encode()
                urllib.request.urlopen(urllib.request.Request(f"{url}/api/put", body, token), timeout=DEADLINE_S).read()
        figures = []
        for metric in PANELS:
            body = json.dumps(question(metric, begin, begin + count)).encode()
            asked = urllib.request.Request(f"{url}/dragon/api/query", body, {**token, "Content-Type": "application/json"})
            first = json.loads(urllib.request.urlopen(asked, timeout=DEADLINE_S).read())
            assert len(first) == (1 if metric == "load_average" else GPUS), first
            cpu, wall = cpu_s(server.process.pid), time.monotonic()
            for _ in range(repeats):
                answer = urllib.request.urlopen(asked, timeout=DEADLINE_S).read()
            figures.append({
                "server": "telem", "metric": metric, "points": count,
                "cpu_ms": (cpu_s(server.process.pid) - cpu) / repeats * 1e3,
                "wall_ms": (time.monotonic() - wall) / repeats * 1e3, "bytes": len(answer),
            })
        return figures
    finally:
        server.stop()


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--telem", type=pathlib.Path, default=ROOT / "target" / "release" / "telem")
    words.add_argument("--seconds", type=float, default=8, help="how long each sender sends")
    words.add_argument("--points", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="points of a panel")
    words.add_argument("--out", type=pathlib.Path, help="where to write the figures as JSON")
    words.add_argument("--serve-dragon", nargs=2, help=argparse.SUPPRESS)
    args = words.parse_args()
    if args.serve_dragon:
        serve_dragon(int(args.serve_dragon[0]), args.serve_dragon[1])
        return
    told = {"machine": f"{os.cpu_count()} cores", "load": os.getloadavg(), "senders": [], "panels": [], "bytes": {}}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        dragon, telem = Dragon(scratch / "dragon"), Telem(scratch / "telem", args.telem)
        try:
            for processes in (1, 8):
                for server, which in [(dragon, "Dragon's class"), (telem, "Dragon's class"), (telem, "telem's class")]:
                    figures = sending(server, which, processes, args.seconds)
                    told["senders"].append(figures)
                    print("{class:>15} -> {server:<15} x{processes}: {points_per_s:9.0f} points/s, client {client_us:7.1f}"
                          " us, server {server_us:7.1f} us a point, {server_mb:5.0f} MB, kept {kept} of {points}"
                          .format(**figures), flush=True)
        finally:
            dragon.stop()
            telem.stop()
        for server in (dragon, telem):
            points, size = server.stored()
            told["bytes"][server.name] = size / points
            print(f"{server.name}: {size / points:.2f} bytes a point on disk")
        for count in args.points:
            repeats = max(2, min(20, 400_000 // count))
            rounds = [dragon_panels(scratch / f"d{count}", count, repeats),
                      telem_panels(scratch / f"t{count}", args.telem, count, repeats)]
            for figures in sum(rounds, []):
                told["panels"].append(figures)
                print("{server:>7} {metric:<18} {points:>8} points: CPU {cpu_ms:8.1f} ms, wall {wall_ms:8.1f} ms, {bytes}"
                      " bytes".format(**figures), flush=True)
    if args.out:
        args.out.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
