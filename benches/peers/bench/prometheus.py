"""Prometheus, through its remote write receiver, as Debian packages it."""

import json
import shutil
import subprocess

from . import promql
from .server import Failed, Server


class Prometheus(Server):
    name = "prometheus"
    package = "prometheus"
    protocol = "remote"
    # Two would bring samples of one series out of order, which it refuses.
    connections = 1
    note = "one connection: it takes samples in order only; its WAL is not synced"

    def prepare(self):
        (self.directory.parent / "prometheus.yml").write_text("global: {}\n")

    def command(self):
        return [
            self.tools.binary(self.package, "usr/bin/prometheus"),
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
        command = [self.tools.binary(self.package, "usr/bin/prometheus"), "--version"]
        said = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        return (said.stdout + said.stderr).splitlines()[0] + f" (package {self.tools.versions[self.package]})"

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
