"""InfluxDB 1.x, as Debian packages it."""

import json
import subprocess
import time
import urllib.parse

from . import machine
from .server import Failed, Server

COMPACT_S = 240
#: Idle for so many seconds it has compacted: it does so 3 s after the last change.
IDLE_TIMES = 6
DATABASE = "bench"

#: What differs from the defaults beside places and ports: nothing is reported to anybody, and no metrics of its own.
#: `cold` is how long after the last write it makes its files small; by default 10 minutes and 4 hours.
CONFIG = """
reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
  dir = "{directory}/meta"
[data]
  dir = "{directory}/data"
  wal-dir = "{directory}/wal"
  cache-snapshot-write-cold-duration = "{snapshot}"
  compact-full-write-cold-duration = "{compact}"
  query-log-enabled = false
[monitor]
  store-enabled = false
[http]
  bind-address = "127.0.0.1:{port}"
  log-enabled = false
[logging]
  level = "warn"
"""


class InfluxDB(Server):
    name = "influxdb"
    note = "its WAL is synced with every request; q6 is the sample of the nearest rank"
    #: Whether to make files small soon: for queries and sizes.
    cold = False

    def command(self):
        config = self.directory.parent / f"{self.directory.name}.conf"
        snapshot, compact = ("3s", "3s") if self.cold else ("10m", "4h")
        values = {"rpc": machine.free_port(), "port": self.port, "directory": self.directory}
        config.write_text(CONFIG.format(snapshot=snapshot, compact=compact, **values))
        return [self.tools.binary(self.name), "-config", config]

    def ready(self):
        if not self.answers("/ping"):
            return False
        made = "/query?" + urllib.parse.urlencode({"q": f"CREATE DATABASE {DATABASE}"})
        return self.get(made, "POST")[0] == 200

    def version(self):
        command = [self.tools.binary(self.name), "version"]
        said = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        return f"{said.stdout.strip()} ({self.tools.versions[self.name]})"

    def write_target(self, protocol):
        return self.port, f"/write?db={DATABASE}", ""

    def prepare_to_merge(self):
        self.cold = True

    def end_merged(self):
        """What has not been written to for a while it compacts; waited for until it has nothing to do any more."""
        until = time.monotonic() + COMPACT_S
        idle = 0
        while idle < IDLE_TIMES:
            if time.monotonic() > until:
                raise Failed(f"{self.name} compacts for more than {COMPACT_S} s")
            before = self.process.cpu_s()
            time.sleep(1)
            busy = self.process.cpu_s() - before > 0.05 or self._unfinished()
            idle = 0 if busy else idle + 1
        self.stop()

    def _unfinished(self):
        data = self.directory / "data" / DATABASE
        return machine.size(self.directory / "wal") > 0 or any(data.rglob("*.tmp"))

    def sizes(self):
        data = self.directory / "data" / DATABASE
        # _series holds 32 MB and more from the start, however few series there are: left out.
        return {"all": machine.size(data / "autogen"), "series": machine.size(data / "_series")}

    def request(self, question):
        measurement, _, field = question.metric.partition("_")
        time_range = f"time >= {question.start_ms}ms AND time < {question.end_ms}ms"
        fields = [metric.partition("_")[2] for metric in question.metrics]
        means = ", ".join(f'mean("{name}") AS "{name}"' for name in fields)
        text = {
            "q1": f"SELECT \"{field}\" FROM {measurement} WHERE host = '{question.host}' AND {time_range}",
            "q2": f'SELECT mean("{field}") FROM {measurement} WHERE {time_range} GROUP BY time(1m)',
            "q3": f'SELECT max("{field}") FROM {measurement} WHERE {time_range} GROUP BY time(5m), host',
            "q4": f"SELECT {means} FROM {measurement} WHERE {time_range} GROUP BY time(1m)",
            "q5": "SELECT last(*) FROM /.*/ GROUP BY *",
            "q6": f'SELECT percentile("{field}", 99) FROM {measurement}',
            "q7": f'SELECT "{field}" FROM {measurement} WHERE "{field}" > 90 GROUP BY host',
            "q8": f'SELECT mean("{field}") FROM {measurement} WHERE {time_range} GROUP BY time(1m), host',
        }[question.name]
        asked = urllib.parse.urlencode({"db": DATABASE, "epoch": "ms", "q": text})
        return "GET", f"/query?{asked}", None, {}

    def answer(self, question, body):
        series = json.loads(body)["results"][0]["series"]
        match question.name:
            case "q1" | "q2":
                return {at: value for at, value in series[0]["values"]}
            case "q3" | "q7" | "q8":
                return {(one["tags"]["host"], at): value for one in series for at, value in one["values"]}
            case "q4":
                found = {}
                for at, *values in series[0]["values"]:
                    found |= {(metric, at): value for metric, value in zip(question.metrics, values)}
                return found
            case "q5":
                found = {}
                for one in series:
                    tags = sorted((one.get("tags") or {}).items())
                    for column, value in zip(one["columns"][1:], one["values"][0][1:]):
                        if value is not None:
                            metric = f"{one['name']}_{column.removeprefix('last_')}"
                            found[(metric, *((key, text) for key, text in tags if text))] = value
                return found
            case "q6":
                return {"p99": series[0]["values"][0][1]}
