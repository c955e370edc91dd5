"""The benchmarks beside other databases: where those come from, and that the questions of a dashboard are asked at all."""

import pathlib
import struct
import subprocess
import sys

import pytest

from conftest import TELEM

BENCHES = pathlib.Path(__file__).resolve().parents[2] / "benches"
sys.path.insert(0, str(BENCHES / "peers"))

from bench import binaries, remote_write  # noqa: E402
from bench.server import Failed  # noqa: E402

#: A `go` that builds a program which says its package, and notes how it was called.
GO = """#!/bin/sh
echo "$@" >> {calls}
case "$1 $2" in
"mod download") echo '{{"Dir": "{folder}"}}' ;;
"build -C")
    while [ "$1" != -o ]; do shift; done
    printf '#!/bin/sh\\necho %s\\n' "$3" > "$2"
    chmod +x "$2" ;;
"env GOVERSION") printf 'go1.99\\n1\\n' ;;
esac
"""


@pytest.fixture
def go(tmp_path, monkeypatch):
    """Puts a `go` on the path and another cache in place; the text of a script is what `go` is."""
    monkeypatch.setattr(binaries, "CACHE", tmp_path / "cache")
    calls = tmp_path / "calls"

    def script(text):
        path = tmp_path / "go"
        path.write_text(text.format(calls=calls, folder=tmp_path))
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return calls

    return script


def test_a_database_is_built_once_from_the_release_of_its_module(go):
    calls = go(GO)
    for _ in range(2):
        found = binaries.Binaries()
        program = found.binary("victoria-metrics")
    assert subprocess.run([program], capture_output=True, text=True).stdout == "./app/victoria-metrics\n"
    module = binaries.MODULES["victoria-metrics"]
    assert found.versions == {"victoria-metrics": f"{module.release}, built by go1.99"}
    assert calls.read_text().count("build -C") == 1
    assert f"{module.path}@{module.version}" in calls.read_text()


def test_another_release_is_built_beside_it_and_said(go):
    calls = go(GO)
    found = binaries.Binaries(releases={"prometheus": "v0.313.5"})
    assert found.binary("prometheus") != binaries.Binaries().binary("prometheus")
    assert found.versions == {"prometheus": "v0.313.5, built by go1.99"}
    assert calls.read_text().count("build -C") == 2


def test_a_module_that_cannot_be_had_is_an_error_that_names_it_and_what_else_there_is(go):
    go("#!/bin/sh\necho no such module >&2\nexit 1\n")
    with pytest.raises(Failed, match="prometheus v0.316.0.*--source debian.*no such module"):
        binaries.Binaries().binary("prometheus")


def test_without_go_databases_are_debians_packages(go, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert binaries.Binaries().source == "debian"
    with pytest.raises(Failed, match="there is no `go`"):
        binaries.Binaries(source="go").binary("prometheus")


@pytest.mark.parametrize("given", [{"releases": {"mysql": "v1"}}, {"paths": {"mysql": "/bin/true"}}])
def test_an_unknown_database_is_an_error_that_names_those_there_are(given):
    with pytest.raises(Failed, match="mysql.*victoria-metrics, prometheus"):
        binaries.Binaries(**given)


def fields(message):
    """A protobuf message: numbers of fields with their bytes, or numbers."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            found.append((key >> 3, varint()))
        else:
            length = 8 if key & 7 == 1 else varint()
            found.append((key >> 3, message[at : at + length]))
            at += length
    return found


def literals(packed):
    """What Snappy packed in nothing but literals."""
    at, out = 0, b""
    while packed[at] >= 0x80:
        at += 1
    at += 1
    while at < len(packed):
        assert packed[at] == 61 << 2, "a literal with its length in two bytes"
        (length,) = struct.unpack_from("<H", packed, at + 1)
        out += packed[at + 3 : at + 4 + length]
        at += 4 + length
    return out


def test_remote_write_says_labels_in_order_values_and_times():
    labels = remote_write.labels({"host": "a", "__name__": "cpu"})
    many = 5_000
    series = remote_write.series(labels, [remote_write.sample(at / 4, 1_451_606_400_000 + at) for at in range(many)])
    ((number, message),) = fields(literals(remote_write.body(series)))
    parts = fields(message)
    assert number == 1
    assert [fields(part) for kind, part in parts if kind == 1] == [[(1, b"__name__"), (2, b"cpu")], [(1, b"host"), (2, b"a")]]
    samples = [dict(fields(part)) for kind, part in parts if kind == 2]
    assert [(struct.unpack("<d", one[1])[0], one[2]) for one in samples] == [
        (at / 4, 1_451_606_400_000 + at) for at in range(many)
    ]


def test_the_questions_of_a_dashboard_are_asked_and_their_answers_are_the_same_of_two_binaries():
    command = [sys.executable, BENCHES / "dashboard.py", TELEM, TELEM, "--hosts", "9", "--questions", "5", "--rounds", "1"]
    done = subprocess.run([*map(str, command), "--clients", "2", "--seconds", "0.1"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.startswith("| `")]
    assert rows[:3] == ["`single-groupby-1-1-1`", "`single-groupby-5-8-1`", "`cpu-max-all-8`"]
    assert {"`lastpoint`", "`high-cpu-1`", "`double-groupby-all`"} <= set(rows)
    assert "| questions a second |" in done.stdout
