"""What people see on a terminal: tables that fit it, and a help on one screen."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from conftest import PATIENCE_S, TELEM

START = 1_767_225_600
COLUMNS = 80


def on_a_terminal(*arguments):
    """What a command prints on a terminal of 80 columns, its lines and what it says on stderr."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [TELEM, *map(str, arguments)], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    said = process.stderr.read()
    assert process.wait(PATIENCE_S) == 0, said
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).splitlines(), said


@pytest.fixture
def database(serve, tmp_path):
    """Fifty samples of a metric with a long name."""
    server = serve(tmp_path / "db")
    name = "node_network_receive_bytes_of_a_name_that_is_long"
    tags = {"interface": "an_interface_with_a_long_name_too", "rank": "0"}
    server.put([{"metric": name, "timestamp": START + n, "value": n / 3, "tags": tags} for n in range(50)])
    server.stop()
    return tmp_path / "db"


def test_a_table_fits_the_terminal_and_tells_how_many_rows_there_are(database, telem):
    lines, said = on_a_terminal("sql", database, "SELECT * FROM samples ORDER BY ts")
    assert all(len(line) <= COLUMNS for line in lines), lines
    assert len(lines) == 40 + 4 and "16.3333" not in "".join(lines)
    assert "the first 40 of 50 rows" in said
    # What is no terminal gets everything.
    whole = telem("sql", database, "SELECT * FROM samples ORDER BY ts")
    assert len(whole.splitlines()) == 50 + 4 and "…" not in whole and "an_interface_with_a_long_name_too" in whole
    # A program gets every digit.
    assert str(49 / 3) in telem("sql", database, "SELECT value FROM samples", "--format", "csv")


def test_ls_names_runs_so_that_other_commands_can_be_given_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    runs = ["telem-20261127-231904-18045", "telem-20261127-231920-18638"]
    for run in runs:
        command = [TELEM, "run", "-q", "--level", "1", "--name", "a name", "--listen", "127.0.0.1:0", "--save", run, "--", "true"]
        subprocess.run(command, check=True, timeout=PATIENCE_S)
    lines, said = on_a_terminal("ls")
    assert all(len(line) <= COLUMNS for line in lines), lines
    text = "\n".join(lines)
    assert all(word in text for word in [*runs, "a name", "completed"]), text
    assert said.endswith("--json has all\n"), said


def test_info_lists_metrics_with_their_range(database):
    lines, _ = on_a_terminal("info", database)
    assert any(line.split()[-4:] == ["1", "50", "0", "16.3333"] for line in lines), lines


@pytest.mark.parametrize("command", ["run", "serve", "replay", "sql", "info", "export", "put", "node", "nodes"])
def test_short_help_is_one_screen(command):
    lines, _ = on_a_terminal(command, "-h")
    assert len(lines) <= 30 and all(len(line) <= COLUMNS for line in lines), "\n".join(lines)
