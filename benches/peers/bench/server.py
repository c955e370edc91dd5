"""A server process that a run starts on loopback, measures and stops: by its process id, and also when the run is cut off."""

import ctypes
import http.client
import os
import pathlib
import signal
import subprocess
import time

from . import machine

START_S = 60
STOP_S = 240
ANSWER_S = 120
#: A server is settled when it takes less than this share of a core, for this long.
IDLE_SHARE, IDLE_S, SETTLE_S = 0.03, 1.0, 120

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Failed(Exception):
    """What was expected of a database did not happen."""


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Process:
    """One child, in a process group of its own, so that Ctrl-C reaches the run first."""

    running = []

    def __init__(self, command, log, environment=None, **options):
        self.log = pathlib.Path(log)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        options.setdefault("stdout", self.log.open("ab"))
        self.child = subprocess.Popen(
            [str(part) for part in command],
            stderr=self.log.open("ab"),
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            preexec_fn=_die_with_parent,
            **{"stdin": subprocess.DEVNULL, **options},
        )
        self.pid = self.child.pid
        Process.running.append(self)

    def alive(self):
        return self.child.returncode is None and self.child.poll() is None

    def cpu_s(self):
        return machine.cpu_seconds(self.pid)

    def memory(self):
        return machine.memory(self.pid)

    def settle(self):
        """Waits until next to nothing is done any more; whether that came."""
        until = time.monotonic() + SETTLE_S
        before = self.cpu_s()
        while time.monotonic() < until:
            time.sleep(IDLE_S)
            now = self.cpu_s()
            if now - before < IDLE_SHARE * IDLE_S:
                return True
            before = now
        machine.say(f"  process {self.pid} is not idle after {SETTLE_S} s")
        return False

    def end(self, how=signal.SIGTERM, watch=None):
        """Asks it to end, waits; all CPU seconds that it took, start included. `watch` is called again and again meanwhile."""
        if self.child.returncode is None:
            os.kill(self.pid, how)
        until = time.monotonic() + STOP_S
        while True:
            if watch:
                watch()
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self.child.returncode = os.waitstatus_to_exitcode(status)
                Process.running.remove(self)
                return usage.ru_utime + usage.ru_stime
            if time.monotonic() > until:
                self.kill()
                raise Failed(f"process {self.pid} did not end within {STOP_S} s: {self.tail()}")
            time.sleep(0.002)

    def kill(self):
        if self in Process.running:
            Process.running.remove(self)
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)
            self.child.wait()

    def tail(self):
        return self.log.read_text(errors="replace")[-2000:]

    @classmethod
    def kill_all(cls):
        for process in list(cls.running):
            process.kill()


class Server:
    """A database as a server. What follows is what each of them says of itself."""

    name = ""
    #: How samples are sent: a kind of body, see load/src/bodies.rs.
    protocol = "lines"
    connections = 2
    #: What is said of it beside its figures.
    note = ""
    #: Sets of data that it refuses, and why.
    refuses = {}

    def __init__(self, tools, directory):
        self.tools = tools
        self.directory = pathlib.Path(directory)
        self.log = self.directory.parent / f"{self.directory.name}.log"
        self.process = None
        self.port = None

    # What each database says for itself:

    @classmethod
    def binaries(cls):
        """The names of the binaries that it is started with."""
        return [cls.name]

    def command(self):
        raise NotImplementedError

    def environment(self):
        return {}

    def ready(self):
        """Whether it answers."""
        raise NotImplementedError

    def prepare(self):
        """Before the first start: files that it wants."""

    def write_target(self, protocol):
        """Port, path and headers for bodies of `protocol`."""
        raise NotImplementedError

    def end_of_load(self):
        """All that was sent is to be in its files; ends the process. CPU seconds: all, and until all was flushed."""
        total = self.stop()
        return {"flushed": total}

    def prepare_to_merge(self):
        """Before a start that ends with `end_merged`."""

    def end_merged(self):
        """As small as it becomes by itself or when it is asked to; ends the process."""
        self.stop()

    def sizes(self):
        """Bytes by part; `all` is what counts."""
        return {"all": machine.size(self.directory)}

    def request(self, question):
        """Method, path, body and headers."""
        raise NotImplementedError

    def answer(self, question, body):
        """The answer in normal form, see questions.py."""
        raise NotImplementedError

    # The same for all:

    def start(self):
        began = time.monotonic()
        if not self.directory.exists():
            self.directory.mkdir(parents=True)
            self.prepare()
        self.port = machine.free_port()
        self.process = Process(self.command(), self.log, self.environment(), cwd=self.directory.parent)
        until = began + START_S
        while not self.ready():
            if not self.process.alive():
                raise Failed(f"{self.name} ended at its start: {self.process.tail()}")
            if time.monotonic() > until:
                raise Failed(f"{self.name} is not ready after {START_S} s: {self.process.tail()}")
            time.sleep(0.01)
        self.started_s = time.monotonic() - began
        return self

    def stop(self, how=signal.SIGTERM, watch=None):
        process, self.process = self.process, None
        return process.end(how, watch)

    def get(self, path, method="GET", body=None, headers=None, port=None):
        """Status and body of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def answers(self, path):
        try:
            return self.get(path)[0] // 100 == 2
        except (OSError, http.client.HTTPException):
            return False
