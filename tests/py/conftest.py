"""The real binary for the Python tests: started on a port that the system chose, ended by its process id."""

import gzip
import http.client
import json
import os
import pathlib
import queue
import subprocess
import tempfile
import threading

import pytest

TELEM = os.environ.get("TELEM") or str(pathlib.Path(os.environ["CARGO_TARGET_DIR"]) / "debug" / "telem")
PATIENCE_S = 120


class Server:
    """`telem serve` on one directory, or another command that serves."""

    def __init__(self, *arguments):
        command = [TELEM, *map(str, arguments)]
        if "--listen" not in command:
            command += ["--listen", "127.0.0.1:0"]
        self.runtime = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "XDG_RUNTIME_DIR": self.runtime.name},
        )
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        printed = []
        while not printed or "listening on" not in printed[-1]:
            line = self.lines.get(timeout=PATIENCE_S)
            assert line is not None, "telem ended:\n" + "".join(printed)
            printed.append(line)
        self.address = printed[-1].split("://")[1].split()[0].rstrip("/,.;")
        self.connection_file = next(line for line in printed if "connection file" in line).split()[-1]
        self.socket = next(line for line in printed if line.startswith("socket ")).split()[-1]
        self.connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def post(self, path, body, headers=None):
        """The answer's body as text; anything but 2xx fails the test."""
        if isinstance(body, str):
            body = body.encode()
        self.connection.request("POST", path, body, headers or {})
        response = self.connection.getresponse()
        text = response.read().decode()
        assert 200 <= response.status < 300, f"{path}: {response.status}: {text}"
        return text

    def put(self, samples, query=""):
        body = gzip.compress(json.dumps(samples).encode(), compresslevel=1)
        return self.post("/api/put" + query, body, {"Content-Encoding": "gzip"})

    def query(self, start, end, **sub):
        return json.loads(self.post("/api/query", json.dumps({"start": start, "end": end, "queries": [sub]})))

    def sql(self, text):
        return json.loads(self.post("/api/sql", text, {"Content-Type": "text/plain"}))

    def notes(self):
        """The notes of the job, in the order of their times."""
        self.connection.request("GET", "/api/annotations?start_time=1")
        response = self.connection.getresponse()
        text = response.read()
        assert response.status == 200, text
        return sorted(json.loads(text), key=lambda note: note["startTime"])

    def stop(self):
        """SIGTERM: everything is flushed when it returns."""
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.runtime.cleanup()


@pytest.fixture
def server():
    """Starts commands that serve and kills those that a test leaves behind."""
    started = []

    def start(*arguments):
        started.append(Server(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def serve(server):
    """Starts `telem serve` on a directory."""
    return lambda data, *more: server("serve", "--level", "1", "--data", data, *more)


@pytest.fixture
def served(serve, tmp_path):
    """A telem that serves an empty directory, unless a file of tests says otherwise."""
    return serve(tmp_path / "db")


@pytest.fixture
def replay(server):
    """Starts `telem replay` of directories."""
    return lambda *dirs: server("replay", *dirs)


@pytest.fixture
def telem():
    """Runs a `telem` command to its end and gives what it printed."""

    def run(*arguments):
        done = subprocess.run([TELEM, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
