"""Prometheus, through its remote write receiver."""

import json
import shutil

from . import promql
from .server import Failed, Server


class Prometheus(Server):
    name = "prometheus"
    protocol = "remote"
    # Two would bring samples of one series out of order, which it refuses.
    connections = 1
    note = "one connection: it takes samples in order only; its WAL is not synced"

    def prepare(self):
        (self.directory.parent / "prometheus.yml").write_text("global: {}\n")

    def command(self):
        return [
            self.tools.binary(self.name),
            f"--config.file={self.directory.parent / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
            "--web.enable-admin-api",
            "--storage.tsdb.retention.time=100y",
            "--log.level=warn",
        ]

    def ready(self):
        return self.answers("/-/ready")

    def version(self):
        return self.tools.versions[self.name]

    def write_target(self, protocol):
        headers = (
            "Content-Encoding: snappy;Content-Type: application/x-protobuf;X-Prometheus-Remote-Write-Version: 0.1.0"
        )
        return self.port, "/api/v1/write", headers

    def end_merged(self):
        """Blocks, as they are made of the head every two hours: by a snapshot, which then is the database."""
        status, said = self.get("/api/v1/admin/tsdb/snapshot", "POST")
        if status != 200:
            raise Failed(f"{self.name}: no snapshot: {said!r}")
        name = json.loads(said)["data"]["name"]
        self.stop()
        blocks = self.directory.with_name(self.directory.name + ".blocks")
        (self.directory / "snapshots" / name).rename(blocks)
        shutil.rmtree(self.directory)
        blocks.rename(self.directory)

    request = staticmethod(promql.request)
    answer = staticmethod(promql.answer)
