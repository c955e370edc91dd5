"""Agents with addresses of their own, behind links that are cut, heal, and get slow.

Each agent lives in a network namespace; a bridge joins them with the head. Namespaces need root: where they
cannot be made these tests are skipped, and the reason is told.
"""

import http.client
import json
import os
import re
import socket
import subprocess
import time

import pytest

from conftest import PATIENCE_S, TELEM

NODES = ["n2", "n3", "n4"]
# A node that shows no sign of life for so long is given up; and something for a busy machine.
SILENCE_S = 5 + 10


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


class Net:
    """A bridge, and a namespace with a link to it for each node. Names and addresses are made of our process id."""

    def __init__(self):
        self.tag = f"{os.getpid() % 100_000:05}"
        self.subnet = f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 256}"
        self.bridge = f"tb{self.tag}"

    def up(self):
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.subnet}.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for at, node in enumerate(NODES):
            ip("netns", "add", self.namespace(node))
            ip("link", "add", self.link(node), "type", "veth", "peer", "name", "uplink", "netns", self.namespace(node))
            ip("link", "set", self.link(node), "master", self.bridge, "up")
            ip("-n", self.namespace(node), "addr", "add", f"{self.subnet}.{at + 11}/24", "dev", "uplink")
            for device in ["uplink", "lo"]:
                ip("-n", self.namespace(node), "link", "set", device, "up")

    def down(self):
        for node in NODES:
            subprocess.run(["ip", "netns", "del", self.namespace(node)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)

    def namespace(self, node):
        return f"telem-{self.tag}-{node}"

    def link(self, node):
        return f"tv{self.tag}{node}"

    def cut(self, node):
        # Nothing answers for the address then, not even with a refusal.
        ip("link", "set", self.link(node), "down")

    def heal(self, node):
        ip("link", "set", self.link(node), "up")


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("telem", timeout=PATIENCE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Job:
    """A head on the bridge, an agent in each namespace."""

    def __init__(self, net, directory):
        self.net, self.directory, self.processes = net, directory, {}
        join = directory / "job.join"
        head = self.start("head", "serve", "--level", "2", "--listen", f"{net.subnet}.1:0", "--join-file", join)
        self.socket = re.search(r"^socket (\S+)$", head, re.MULTILINE)[1]
        for node in NODES:
            self.start(node, "node", "--join", join, "--node", node, prefix=["ip", "netns", "exec", net.namespace(node)])

    def start(self, name, *arguments, prefix=()):
        """Starts a telem, and gives what it printed until it listened."""
        log = self.directory / f"{name}.log"
        runtime = self.directory / f"run-{name}"
        runtime.mkdir(mode=0o700)
        command = [*prefix, TELEM, *map(str, arguments), "--data", str(self.directory / name)]
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
        with log.open("w") as out:
            self.processes[name] = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        deadline = time.monotonic() + PATIENCE_S
        while "listening on" not in log.read_text():
            assert self.processes[name].poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        return log.read_text()

    def ask(self, what):
        """The hosts of an answer, whom it lacks, and how long it took."""
        connection, begun = Unix(self.socket), time.monotonic()
        if what == "series":
            connection.request("GET", "/api/query?start=5m-ago&m=sum:10s-count:node_load1%7Bhost=*%7D")
        else:
            connection.request("POST", "/api/sql?format=json", "SELECT DISTINCT host FROM node_load1")
        response = connection.getresponse()
        rows = json.loads(response.read())
        assert response.status == 200, rows
        hosts = {row["tags"]["host"] if what == "series" else row["host"] for row in rows}
        missing = response.headers.get("X-Telem-Missing") or ""
        return hosts & set(NODES), missing, time.monotonic() - begun

    def until(self, wanted, why):
        """Asks until the answer covers exactly these nodes; no question may outlast the patience with silent nodes."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answers = [self.ask("series"), self.ask("rows")]
            assert max(took for _, _, took in answers) < 2 * SILENCE_S, answers
            if all(hosts == wanted for hosts, _, _ in answers):
                return [missing for _, missing, _ in answers]
            time.sleep(0.1)
        pytest.fail(f"{why}: {answers}, expected {wanted}")

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture
def job(tmp_path):
    net = Net()
    try:
        net.up()
    except (OSError, subprocess.CalledProcessError) as error:
        net.down()
        pytest.skip(f"no network namespaces here: {getattr(error, 'stderr', None) or error}")
    job = None
    try:
        job = Job(net, tmp_path)
        yield job
    finally:
        if job:
            job.stop()
        net.down()


def test_a_link_that_is_cut_costs_its_node_alone_and_healing_brings_it_back(job):
    assert job.until(set(NODES), "all links are up") == ["", ""]
    job.net.cut("n3")
    for missing in job.until({"n2", "n4"}, "the link of n3 is cut"):
        assert missing.startswith("n3=") and "," not in missing, missing
    # It is known to be down: nobody waits for it again.
    hosts, missing, took = job.ask("series")
    assert hosts == {"n2", "n4"} and missing.startswith("n3=") and took < SILENCE_S
    job.net.heal("n3")
    assert job.until(set(NODES), "the link of n3 is healed") == ["", ""]


def test_a_slow_link_makes_answers_late_and_not_wrong(job):
    assert job.until(set(NODES), "all links are fast") == ["", ""]
    slow = ["tc", "qdisc", "add", "dev", job.net.link("n4"), "root"]
    for shape in [["netem", "delay", "200ms"], ["tbf", "rate", "256kbit", "burst", "1600", "latency", "3s"]]:
        if subprocess.run([*slow, *shape], capture_output=True, check=False).returncode == 0:
            break
    else:
        pytest.skip("the kernel has neither netem nor tbf to make a link slow with")
    for what in ["series", "rows"]:
        hosts, missing, took = job.ask(what)
        assert (hosts, missing) == (set(NODES), ""), f"{what} over {shape[0]} after {took:.1f} s"
