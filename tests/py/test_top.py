"""`telem top` on a terminal: it takes all of it, answers to keys, and gives it back as it was."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from conftest import PATIENCE_S, TELEM

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
# Moves the cursor, or anything else that a terminal is told.
SEQUENCE = re.compile(r"\x1b\[(?:(\d+);(\d+)H|[?0-9;]*[@-~])")


class OnATerminal:
    """`telem top` in a pseudo-terminal, and what is to be seen there."""

    def __init__(self, *arguments, size=(24, 80)):
        self.ours, self.theirs = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.theirs)
        self.process = subprocess.Popen(
            [TELEM, "top", "--interval", "100ms", *map(str, arguments)],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=subprocess.PIPE,
        )
        self.sent = b""

    def screen(self):
        """The lines by their number, from 1."""
        cells, at, (y, x) = {}, 0, (1, 1)
        # What is cut in the middle of a character or of a sequence is read next time.
        text = self.sent.decode(errors="ignore")
        while at < len(text):
            moved = SEQUENCE.match(text, at)
            if moved is None:
                cells.setdefault(y, {})[x] = text[at]
                at, x = at + 1, x + 1
                continue
            at = moved.end()
            if moved[1]:
                y, x = int(moved[1]), int(moved[2])
            elif moved[0] == "\x1b[2J":
                cells = {}
        return {y: "".join(line.get(x, " ") for x in range(1, max(line) + 1)) for y, line in cells.items()}

    def resize(self, lines, columns):
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys):
        os.write(self.ours, keys)

    def wait_for(self, seen):
        end = time.monotonic() + PATIENCE_S
        while not seen():
            assert time.monotonic() < end, self.screen()
            if select.select([self.ours], [], [], 1)[0]:
                self.sent += os.read(self.ours, 65_536)

    def shows(self, wanted, line=None):
        """Waits until this is on the screen, or in one of its lines."""
        self.wait_for(lambda: any(wanted in text for y, text in self.screen().items() if line in (None, y)))

    def ends(self, code=0):
        """It ends, and the terminal is as it was."""
        self.wait_for(lambda: LEAVE.encode() in self.sent)
        assert self.process.wait(PATIENCE_S) == code, self.process.stderr.read()
        assert termios.tcgetattr(self.theirs) == self.before

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def top():
    started = []

    def start(*arguments, **more):
        started.append(OnATerminal(*arguments, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def database(tmp_path, serve):
    """Two minutes of a metric, saved."""
    server = serve(tmp_path / "db")
    at = {"metric": "train.loss", "tags": {"rank": "0"}}
    server.put([{**at, "timestamp": 1_767_225_600 + n, "value": n} for n in range(120)])
    server.stop()
    return tmp_path / "db"


def test_keys_are_answered_and_q_gives_the_terminal_back(top, served):
    served.put([{"metric": "train.loss", "timestamp": int(time.time()), "value": 0.125, "tags": {"rank": "0"}}])
    screen = top(f"http://{served.address}")
    screen.shows("train.loss")
    assert ENTER.encode() in screen.sent and termios.tcgetattr(screen.theirs) != screen.before
    # What comes later is shown.
    served.put([{"metric": "a.later.one", "timestamp": int(time.time()), "value": 77.5, "tags": {"rank": "0"}}])
    screen.shows("a.later.one")
    screen.press(b"?")
    screen.shows("this help")
    screen.press(b"x/")
    screen.shows("filter: _")
    screen.press(b"\x1b")
    screen.resize(50, 120)
    os.kill(screen.process.pid, signal.SIGWINCH)
    screen.shows("q quit", line=50)
    screen.press(b"q")
    screen.ends()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, b"\x03", b"\x1b"])
def test_however_it_ends_the_terminal_is_as_it_was(top, database, how):
    screen = top(database)
    screen.shows("train.loss")
    if isinstance(how, bytes):
        screen.press(how)
    else:
        screen.process.send_signal(how)
    screen.ends()


def test_a_server_that_goes_away_is_told_of(top, served):
    served.put([{"metric": "train.loss", "timestamp": int(time.time()), "value": 0.125, "tags": {"rank": "0"}}])
    screen = top(f"http://{served.address}")
    screen.shows("train.loss")
    served.stop()
    screen.shows("no answer for")
    screen.press(b"q")
    screen.ends()


def test_a_saved_job_is_played_at_a_speed(top, database):
    screen = top(database, "--speed", "60")
    screen.shows("at 2026-01-01 00:00:00")
    # Its last second is two seconds away.
    screen.shows("at 2026-01-01 00:01:59")
    screen.press(b"q")
    screen.ends()
