"""Makes the wheel and the source archive of `telem`, as pip asks for them (PEP 517 and 660), with the standard
library alone: compute nodes rarely reach a package index, and this package needs nothing from one.

Where there is a C compiler, and Python's headers, the wheel has the compiled core and serves CPython from 3.9 on; where
not, or with TELEM_PURE=1, it is the same package in Python alone. Which of them, and why, is one line of the build."""

import base64
import hashlib
import io
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "telem"
PURE_TAG = "py3-none-any"
CORE = "_core.c"
COMPILE_S = 300
"""Longest that the compiler may take, in seconds."""


def _version():
    for line in (ROOT / "telem" / "__init__.py").read_text(encoding="utf-8").splitlines():
        if line.startswith("__version__"):
            return line.split('"')[1]
    raise RuntimeError("telem/__init__.py has no __version__")


def _metadata():
    fields = [
        "Metadata-Version: 2.1",
        f"Name: {NAME}",
        f"Version: {_version()}",
        "Summary: Telemetry of HPC and AI jobs, from inside the job: custom metrics in, SQL out",
        "License: Apache-2.0",
        "Requires-Python: >=3.9",
        "Provides-Extra: arrow",
        'Requires-Dist: pyarrow; extra == "arrow"',
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(fields) + "\n\n" + (ROOT / "README.md").read_text(encoding="utf-8")


def _sources():
    """The files of the package and of the packages in it, by their paths from the top."""
    found = (path for path in (ROOT / NAME).rglob("*") if path.suffix == ".py" or path.name in ("py.typed", CORE))
    return {path.relative_to(ROOT).as_posix(): path for path in sorted(found)}


def _library():
    """The sources of libtelem, by their paths from the top, where `c` is a link to clients/c."""
    folders = [ROOT / "c" / "src", ROOT / "c" / "include"]
    return [path.relative_to(ROOT).as_posix() for folder in folders for path in sorted(folder.glob("*.[ch]"))]


class _NoCore(Exception):
    """Why the core is not compiled."""


def _compiled_core():
    """The bytes of the compiled core, and the tag of a wheel that has it."""
    if os.environ.get("TELEM_PURE", "") not in ("", "0"):
        raise _NoCore("TELEM_PURE says so")
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise _NoCore("it is for CPython with its lock")
    named = os.environ.get("CC") or next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if not sys.platform.startswith("linux"):
        raise _NoCore("it is for Linux")
    if not named:
        raise _NoCore("there is no C compiler (the variable CC names one)")
    include = sysconfig.get_path("include")
    if not pathlib.Path(include, "Python.h").exists():
        raise _NoCore(f"{include} has no Python.h: the headers of Python are not installed")
    flags = ["-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-g0", "-pthread", "-DTELEM_API=", f"-I{include}"]
    # libtelem stands in the core, and shows nothing: a program may have another copy of it.
    library = [f"../{path}" for path in _library() if path.endswith(".c")]
    with tempfile.TemporaryDirectory() as scratch:
        built = pathlib.Path(scratch) / "_core.abi3.so"
        # From its own directory, so that no path of this machine is in the result.
        command = [*shlex.split(named), *flags, "-I../c/src", CORE, *library, "-lm", "-o", str(built)]
        try:
            done = subprocess.run(command, cwd=ROOT / NAME, capture_output=True, text=True, errors="replace", timeout=COMPILE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _NoCore(f"{named} did not work: {error}") from error
        if done.returncode != 0 or not built.exists():
            raise _NoCore(f"{named} ended with {done.returncode}: {(done.stderr.strip() or 'no message').splitlines()[0]}")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return built.read_bytes(), f"cp39-abi3-{platform}"


def _write_wheel(directory, files, tag=PURE_TAG):
    info = f"{NAME}-{_version()}.dist-info"
    is_pure = str(tag == PURE_TAG).lower()
    wheel = f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: {is_pure}\nTag: {tag}\n"
    files = {**files, f"{info}/METADATA": _metadata().encode(), f"{info}/WHEEL": wheel.encode()}
    record = io.StringIO()
    name = f"{NAME}-{_version()}-{tag}.whl"
    with zipfile.ZipFile(pathlib.Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            # One date for all, so that equal sources make equal wheels.
            archive.writestr(_entry(path), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.write(f"{path},sha256={digest},{len(content)}\n")
        record.write(f"{info}/RECORD,,\n")
        archive.writestr(_entry(f"{info}/RECORD"), record.getvalue())
    return name


def _entry(path):
    entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {name: path.read_bytes() for name, path in _sources().items() if path.name != CORE}
    try:
        core, tag = _compiled_core()
    except _NoCore as why:
        print(f"{NAME}: in Python alone, without the compiled core: {why}", flush=True)
        return _write_wheel(wheel_directory, files)
    print(f"{NAME}: with the compiled core", flush=True)
    return _write_wheel(wheel_directory, {**files, f"{NAME}/_core.abi3.so": core}, tag)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _write_wheel(wheel_directory, {f"__editable__{NAME}.pth": f"{ROOT}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{_version()}"
    files = ["pyproject.toml", "README.md", "backend/build_wheel.py", *_sources(), *_library()]
    with tarfile.open(pathlib.Path(sdist_directory) / f"{base}.tar.gz", "w:gz") as archive:
        for file in files:
            archive.add(ROOT / file, f"{base}/{file}")
        metadata = _metadata().encode()
        entry = tarfile.TarInfo(f"{base}/PKG-INFO")
        entry.size = len(metadata)
        archive.addfile(entry, io.BytesIO(metadata))
    return f"{base}.tar.gz"
