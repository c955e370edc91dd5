"""Metric Proxy itself, for tests that need it: its server, and its tools beside it.

`TELEM_ORIGINAL_PROXY=PREFIX/bin/proxy_v2` names its server; `proxy_run` is beside it, and libraries are in `PREFIX/lib`.
`./test original PREFIX` sets it.
"""

import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.error

import pytest
from conftest import PATIENCE_S, Server
from test_proxy import free_port, get, until

ORIGINAL = pathlib.Path(os.environ.get("TELEM_ORIGINAL_PROXY", "/nowhere"))
PREFIX = ORIGINAL.parent.parent
needs_original = pytest.mark.skipif(not ORIGINAL.exists(), reason="TELEM_ORIGINAL_PROXY names no server of Metric Proxy")
# Its library loses what its thread has taken and not yet sent when the process ends. So all is sent at the end.
PERIOD_MS = 60_000
OF_OTHER_JOBS = ("PROXY_", "SLURM_", "OMPI_", "PMI", "METRIC_PROXY_", "TELEM_", "LD_PRELOAD")


def clean(**more):
    """The environment without what a job around the tests says."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith(OF_OTHER_JOBS)}, **more}


class Original:
    """Metric Proxy's server; one that is started again has the same port and files."""

    def __init__(self, folder, *options):
        self.folder, self.options, self.port = folder, options, free_port()
        self.base, self.path = f"http://127.0.0.1:{self.port}", folder / "original"
        (folder / "original.d").mkdir(exist_ok=True)
        self.start()

    def start(self):
        words = [ORIGINAL, "-p", self.port, "-u", self.path, "-t", self.folder / "original.d", *self.options]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
        self.process = subprocess.Popen(list(map(str, words)), env={**clean(), "RUST_LOG": "error"}, **quiet)
        until(lambda: asked(f"{self.base}/job/list"))

    def stop(self):
        self.process.kill()
        self.process.wait()


class Telem:
    """`telem proxy` in its place."""

    def __init__(self, folder, *options):
        self.folder, self.options, self.port = folder, options, free_port()
        self.base, self.path = f"http://127.0.0.1:{self.port}", folder / "telem"
        (folder / "telem.d").mkdir(exist_ok=True)
        self.start()

    def start(self):
        self.server = Server("proxy", "-p", self.port, "-u", self.path, "-t", self.folder / "telem.d", *self.options)

    def token(self):
        return json.loads(pathlib.Path(self.server.connection_file).read_text())["token"]

    def stop(self):
        self.server.stop()

    def kill(self):
        self.server.kill()


class Proxies:
    """Both servers, each with its HTTP address and its socket."""

    def __init__(self, folder):
        self.node = f"Node: {socket.gethostname()}"
        self.running = {"original": Original(folder), "telem": Telem(folder)}
        self.places = {name: (one.base, one.path) for name, one in self.running.items()}

    def stop(self):
        for one in self.running.values():
            one.stop()


def asked(url):
    """The answer; None while there is none."""
    try:
        return get(url)
    except (urllib.error.URLError, ConnectionError):
        return None


@pytest.fixture
def proxies(tmp_path):
    both = Proxies(tmp_path)
    yield both
    both.stop()


def build(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"


def ran(command, code=0, **more):
    """Runs to its end what needs no input."""
    done = subprocess.run(list(map(str, command)), env=clean(**more), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=PATIENCE_S)
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def launch(command, job, path, exporters, *, launcher=(PREFIX / "bin" / "proxy_run",), **variables):
    """Below the original's launcher, or another; without a job what is in the environment says which it is."""
    options = [*(() if job is None else ("-j", job)), *(() if exporters is None else ("-e", exporters))]
    return ran([*launcher, "-S", PERIOD_MS, *options, "-u", path, "--", *command], **variables)


def counted(profile):
    """What clients counted, without times."""
    strip = lambda ctype: {kind: {key: value for key, value in told.items() if key != "ts"} for kind, told in ctype.items()}
    own = lambda name: not name.startswith("proxy_") and name != "walltime"
    return {one["name"]: (one["doc"], strip(one["ctype"])) for one in profile["counters"] if own(one["name"])}


def described(profile):
    """What is said of a job, without times."""
    return {key: value for key, value in profile["desc"].items() if key not in ("start_time", "end_time")}


def profile_of(base, job):
    until(lambda: asked(f"{base}/profiles/get?jobid={job}"))
    return get(f"{base}/profiles/get?jobid={job}")


def value(base, job, name):
    """A live counter; None while there is none."""
    told = asked(f"{base}/job?job={job.replace(' ', '%20')}")
    if told is None:
        return None
    found = [one["ctype"]["Counter"]["value"] for one in told["counters"] if one["name"] == name]
    return found[0] if found else None


def await_value(base, job, name, expected):
    """Waits until a counter is what it should be, and says what it is where it does not become so."""
    end = time.monotonic() + PATIENCE_S
    while (found := value(base, job, name)) != expected:
        targets = asked(f"{base}/join/list")
        assert time.monotonic() < end, f"{name} of {job} is {found} instead of {expected}: {targets}"
        time.sleep(0.05)
