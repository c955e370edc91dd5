"""VictoriaMetrics, a single node."""

import signal
import time

from . import machine, promql
from .server import Failed, Server

MERGE_S = 180


class VictoriaMetrics(Server):
    name = "victoria-metrics"
    note = "no WAL: what came in the last seconds is lost with the process"

    def command(self):
        self.put_port = machine.free_port()
        return [
            self.tools.binary(self.name),
            f"-storageDataPath={self.directory}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            f"-opentsdbHTTPListenAddr=127.0.0.1:{self.put_port}",
            "-retentionPeriod=100y",
            # Every repetition is to be computed.
            "-search.disableCache",
            "-loggerLevel=WARN",
        ]

    def ready(self):
        return self.answers("/health")

    def version(self):
        return self.tools.versions[self.name]

    def write_target(self, protocol):
        match protocol:
            case "lines":
                return self.port, "/write", ""
            case "put":
                return self.put_port, "/api/put", "Content-Type: application/json"
            case "remote":
                return self.port, "/api/v1/write", "Content-Encoding: snappy"

    def end_of_load(self):
        self.get("/internal/force_flush")
        return {"flushed": self.stop(signal.SIGINT)}

    def end_merged(self):
        self.get("/internal/force_flush")
        self.process.settle()
        self.get("/internal/force_merge")
        until = time.monotonic() + MERGE_S
        while self._merging():
            if time.monotonic() > until:
                raise Failed(f"{self.name} merges for more than {MERGE_S} s")
            time.sleep(0.2)
        self.process.settle()
        self.stop(signal.SIGINT)

    def _merging(self):
        time.sleep(0.2)
        _, text = self.get("/metrics")
        return any(
            line.startswith(b"vm_active_force_merges") and not line.endswith(b" 0") for line in text.splitlines()
        )

    def sizes(self):
        parts = {part: machine.size(self.directory / part) for part in ("data", "indexdb")}
        return {"all": sum(parts.values()), **parts}

    def request(self, question):
        method, path, body, headers = promql.request(question)
        return method, path + "&nocache=1", body, headers

    answer = staticmethod(promql.answer)
