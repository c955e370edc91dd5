"""The wheel: with the compiled core where there is a compiler, without it elsewhere, and the same tests with both."""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLIENT = ROOT / "clients" / "python"
PATIENCE_S = 300
BUILD = "import sys; sys.path.insert(0, 'backend'); import build_wheel; print(build_wheel.build_wheel(sys.argv[1]))"


def build(directory, **environment):
    """The wheel and what the build said."""
    clean = {k: v for k, v in os.environ.items() if k not in ("TELEM_PURE", "CC")}
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(directory)],
        cwd=CLIENT,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    *said, name = done.stdout.strip().splitlines()
    return pathlib.Path(directory) / name, said


def names_in(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        tag = next(line for line in archive.read("telem-0.1.0.dist-info/WHEEL").decode().splitlines() if line.startswith("Tag: "))
        return set(archive.namelist()), tag[len("Tag: ") :]


def can_compile():
    headers = pathlib.Path(sysconfig.get_path("include"), "Python.h")
    return bool(shutil.which("cc")) and headers.exists()


@pytest.mark.parametrize(
    "environment, why",
    [
        ({"TELEM_PURE": "1"}, "TELEM_PURE says so"),
        ({"CC": "/nowhere/cc"}, "/nowhere/cc did not work"),
        ({"CC": "false"}, "false ended with 1"),
    ],
)
def test_without_a_compiler_the_wheel_is_pure_and_one_line_says_why(tmp_path, environment, why):
    wheel, said = build(tmp_path, **environment)
    names, tag = names_in(wheel)
    assert len(said) == 1 and why in said[0] and "in Python alone" in said[0]
    assert wheel.name == "telem-0.1.0-py3-none-any.whl" and tag == "py3-none-any"
    assert "telem/__init__.py" in names and "telem/py.typed" in names
    assert not any(name.endswith((".so", ".c")) for name in names)


def test_with_a_compiler_the_wheel_has_the_core_and_says_which_machines_it_is_for(tmp_path):
    assert can_compile(), "the tests need a C compiler and the headers of Python"
    wheel, said = build(tmp_path / "a" if (tmp_path / "a").mkdir() is None else tmp_path)
    names, tag = names_in(wheel)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert said == ["telem: with the compiled core"]
    assert tag == f"cp39-abi3-{platform}" and wheel.name == f"telem-0.1.0-{tag}.whl"
    assert "telem/_core.abi3.so" in names and "telem/_core.c" not in names
    (tmp_path / "b").mkdir()
    again, _ = build(tmp_path / "b")
    assert again.read_bytes() == wheel.read_bytes(), "equal sources make equal wheels"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The package with its core, as pip would unpack it."""
    directory = tmp_path_factory.mktemp("wheel")
    wheel, _ = build(directory)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory / "site")
    return directory / "site"


def test_the_core_is_chosen_at_import_unless_the_variable_says_otherwise(compiled):
    script = "import telem, sys; from telem import _choice; print(_choice.IS_COMPILED, telem.Counter.__mro__[1].__module__)"
    for pure, said in [("", "True telem._core\n"), ("0", "True telem._core\n"), ("1", "False telem._lane\n")]:
        environment = {**os.environ, "PYTHONPATH": str(compiled), "TELEM_PURE": pure}
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.stdout, done.stderr) == (said, "")


def other_pythons():
    found = {}
    for version in ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]:
        for candidate in [f"python{version}", *map(str, sorted(pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))]:
            try:
                said = subprocess.run([candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True)
            except OSError:
                continue
            if said.returncode == 0 and said.stdout.strip() == version:
                found[version] = candidate
    return found


def test_one_core_serves_every_python_that_is_here(compiled, serve, tmp_path):
    server = serve(tmp_path / "db")
    script = """
import math, sys, telem
from telem import _choice
assert _choice.IS_COMPILED
telemetry = telem.Telemetry()
counter, gauge, histogram = telem.Counter("c"), telem.Gauge("g"), telem.Histogram("h", buckets=[1])
for number in range(300):
    telemetry.add_data("m", number, tags={"v": sys.version_info[1], "n": str(number % 3)})
    telemetry.add_data("x", 0.1 * number); counter.inc(); gauge.set(1.5); histogram.observe(number / 100)
assert telemetry.flush(60) and telemetry.dropped == 0, telemetry.stats()
assert (counter.value, histogram.count) == (300, 300)
"""
    pythons = other_pythons()
    for executable in pythons.values():
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TELEM_")},
            "PYTHONPATH": str(compiled),
            "TELEM_CONNECTION": str(tmp_path / "db" / "connection.json"),
        }
        done = subprocess.run([executable, "-c", script], env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, done.stderr) == (0, ""), f"{executable}: {done.stderr}"
    assert server.sql("SELECT count(*) AS n FROM m") == [{"n": 300 * len(pythons)}] and pythons


def test_the_tests_of_the_client_pass_with_the_core_too(compiled):
    """They are run once more, in a process that has it: what the pure client promises holds for both."""
    environment = {**os.environ, "TELEM_CLIENT": str(compiled), "TELEM_PURE": ""}
    files = [str(ROOT / "tests" / "py" / name) for name in ("test_client.py", "test_metrics.py")]
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-8_000:]
