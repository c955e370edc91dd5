"""telem: line protocol or /api/put in, OpenTSDB queries and SQL out."""

import datetime
import functools
import json
import subprocess
import time

from . import machine
from .server import Failed, Server

JSON = {"Content-Type": "application/json"}


class Telem(Server):
    name = "telem"
    note = "WAL synced every 100 ms"

    @property
    def binary(self):
        return self.tools.telem

    def command(self):
        listen = f"127.0.0.1:{self.port}"
        return [self.binary, "serve", "--data", self.directory, "--listen", listen, "--level", "1"]

    def environment(self):
        # Its socket: beside no other telem's.
        return {"XDG_RUNTIME_DIR": str(self.tools.runtime_dir)}

    def ready(self):
        return self.answers("/api/version")

    def version(self):
        return subprocess.run(
            [self.binary, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()

    def write_target(self, protocol):
        return self.port, {"lines": "/write", "put": "/api/put"}[protocol], ""

    def end_of_load(self):
        """Asked to end it flushes, and the WAL is gone."""
        process, flushed = self.process, []

        def watch():
            wal = self.directory / "wal"
            try:
                bytes_left = sum(path.stat().st_size for path in wal.glob("*.wal"))
                if not flushed and bytes_left < 4096:
                    flushed.append(process.cpu_s())
            except OSError:
                # A file that goes away between two looks.
                pass

        total = self.stop(watch=watch)
        return {"flushed": flushed[0] if flushed else total, "merged": total}

    def end_merged(self):
        """A server leaves merging to later; a database becomes small at a job's clean end, or when it is told to."""
        self.stop()
        command = [str(part) for part in (self.binary, "-q", "compact", self.directory)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"telem compact: {done.stderr}")

    def sizes(self):
        parts = {part: machine.size(self.directory / part) for part in ("segments", "series", "wal")}
        return {"all": machine.size(self.directory), **parts}

    def files(self):
        return len(list(self.directory.glob("segments/*")))

    def request(self, question):
        sql = {
            "q6": f"SELECT quantile_cont(value, 0.99) AS p99 FROM {question.metric}",
            "q7": f"SELECT ts, host, value FROM {question.metric} WHERE value > 90",
        }
        if question.name in sql:
            return "POST", "/api/sql", sql[question.name], {}
        if question.name == "q5":
            wanted = {"queries": [{"metric": metric} for metric in self.metrics()], "resolveNames": True}
            return "POST", "/api/query/last", json.dumps(wanted), JSON
        asked = {"start": question.start_ms, "end": question.end_ms - 1, "msResolution": True}
        host = {"tagk": "host", "type": "wildcard", "filter": "*", "groupBy": True}
        one = {"tagk": "host", "type": "literal_or", "filter": question.host, "groupBy": False}
        asked["queries"] = {
            "q1": [{"metric": question.metric, "aggregator": "none", "filters": [one]}],
            "q2": [{"metric": question.metric, "aggregator": "avg", "downsample": "1m-avg"}],
            "q3": [{"metric": question.metric, "aggregator": "max", "downsample": "5m-max", "filters": [host]}],
            "q8": [{"metric": question.metric, "aggregator": "avg", "downsample": "1m-avg", "filters": [host]}],
            "q4": [{"metric": metric, "aggregator": "avg", "downsample": "1m-avg"} for metric in question.metrics],
        }[question.name]
        return "POST", "/api/query", json.dumps(asked), JSON

    @functools.cache
    def metrics(self):
        return json.loads(self.get("/api/suggest?type=metrics&max=10000")[1])

    def answer(self, question, body):
        rows = json.loads(body)
        match question.name:
            case "q1" | "q2":
                return {int(at): value for at, value in rows[0]["dps"].items()}
            case "q3" | "q8":
                return {(row["tags"]["host"], int(at)): v for row in rows for at, v in row["dps"].items()}
            case "q4":
                return {(row["metric"], int(at)): v for row in rows for at, v in row["dps"].items()}
            case "q5":
                return {(row["metric"], *sorted(row["tags"].items())): float(row["value"]) for row in rows}
            case "q6":
                return {"p99": rows[0]["p99"]}
            case "q7":
                return {(row["host"], milliseconds(row["ts"])): row["value"] for row in rows}

    def export(self, out):
        """All samples as one Parquet file; seconds."""
        began = time.monotonic()
        command = [self.binary, "-q", "export", self.directory, "-o", out]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"telem export: {done.stderr}")
        return time.monotonic() - began


class TelemBefore(Telem):
    """Another build of telem, by turns with the one that is measured: did something get slower?"""

    name = "telem-before"

    @property
    def binary(self):
        return self.tools.before


def milliseconds(text):
    moment = datetime.datetime.fromisoformat(text)
    return round(moment.timestamp() * 1_000)
