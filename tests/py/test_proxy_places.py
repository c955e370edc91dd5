"""The port and the socket where Metric Proxy's clients look, which a machine has once: in a machine of its own."""

import json
import os
import subprocess
import sys

import pytest
from conftest import PATIENCE_S, TELEM

# Loopback alone, and an empty /tmp, where the socket is.
MACHINE = ["unshare", "-rnm", "sh", "-c", 'ip link set lo up && mount -t tmpfs none /tmp && exec "$@"', "sh"]
# Counts as a program that is linked against the original's library does, and says what it is told at the original's port.
PROGRAM = r"""
import json, os, socket, sys, time, urllib.request
end = time.monotonic() + 60
def ask(path):
    with urllib.request.urlopen("http://127.0.0.1:1337" + path, timeout=60) as answer:
        return json.load(answer)
def until(condition):
    while True:
        try:
            found = condition()
        except OSError as error:
            found = None
        if found is not None:
            return found
        if time.monotonic() > end:
            sys.exit("too late")
        time.sleep(0.02)
def connected():
    client = socket.socket(socket.AF_UNIX)
    client.connect(f"/tmp/metric-proxy-{os.getuid()}.socket")
    return client
client = until(connected)
tell = lambda message: client.sendall(json.dumps(message).encode() + b"\0")
value = lambda number: {"Counter": {"ts": 0, "value": number}}
tell({"Desc": {"name": "work", "doc": "", "ctype": value(0.0)}})
tell({"Value": {"name": "work", "value": value(3.0)}})
def counted():
    found = [one for one in ask("/job?job=main")["counters"] if one["name"] == "work"]
    return found[0]["ctype"]["Counter"]["value"] if found else None
print(json.dumps({"work": until(counted), "jobs": [job["jobid"] for job in ask("/job/list")]}))
"""


@pytest.fixture(scope="module")
def machine():
    """Runs a command in a network and a /tmp of its own."""

    def run(*command):
        words = [*MACHINE, *map(str, command)]
        return subprocess.run(words, capture_output=True, text=True, timeout=2 * PATIENCE_S, env=plain())

    if TELEM.startswith("/tmp/") or run("true").returncode != 0:
        pytest.skip("namespaces of users are not allowed here, or telem itself is below /tmp")
    return run


def plain():
    """The environment without what a scheduler or telem says."""
    starts = ("TELEM", "SLURM", "PROXY", "XDG_RUNTIME_DIR", "PMI", "OMPI")
    return {name: value for name, value in os.environ.items() if not name.startswith(starts)}


def told(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("command", [["serve", "--proxy", "--data", "/tmp/data"], ["proxy"]])
def test_a_server_is_where_clients_look(machine, command):
    # HOME is as empty as /tmp.
    script = 'HOME=/tmp/home "$@" --listen 127.0.0.1:0 >/tmp/log 2>&1 & "$0" -c "$PROGRAM"; ended=$?; kill $!; wait; exit $ended'
    done = machine("env", f"PROGRAM={PROGRAM}", "sh", "-c", script, sys.executable, TELEM, *command)
    found = told(done)
    assert found["work"] == 3.0 and "main" in found["jobs"], found


def test_a_run_is_where_clients_look(machine):
    done = machine(TELEM, "run", "--proxy", "--job", "mine", "--save", "/tmp/saved", "--", sys.executable, "-c", PROGRAM)
    found = told(done)
    assert found["work"] == 3.0 and "mine" in found["jobs"], found
