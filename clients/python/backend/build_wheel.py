"""Makes the wheel and the source archive of `telem`, as pip asks for them (PEP 517 and 660), with the standard
library alone: compute nodes rarely reach a package index, and this package needs nothing from one."""

import base64
import hashlib
import io
import pathlib
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "telem"
TAG = "py3-none-any"


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
    found = (path for path in (ROOT / NAME).rglob("*") if path.suffix == ".py" or path.name == "py.typed")
    return {path.relative_to(ROOT).as_posix(): path for path in sorted(found)}


def _write_wheel(directory, files):
    info = f"{NAME}-{_version()}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: {NAME}\nRoot-Is-Purelib: true\nTag: {TAG}\n"
    files = {**files, f"{info}/METADATA": _metadata().encode(), f"{info}/WHEEL": wheel.encode()}
    record = io.StringIO()
    name = f"{NAME}-{_version()}-{TAG}.whl"
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
    return _write_wheel(wheel_directory, {name: path.read_bytes() for name, path in _sources().items()})


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _write_wheel(wheel_directory, {f"__editable__{NAME}.pth": f"{ROOT}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{_version()}"
    files = ["pyproject.toml", "README.md", "backend/build_wheel.py", *_sources()]
    with tarfile.open(pathlib.Path(sdist_directory) / f"{base}.tar.gz", "w:gz") as archive:
        for file in files:
            archive.add(ROOT / file, f"{base}/{file}")
        metadata = _metadata().encode()
        entry = tarfile.TarInfo(f"{base}/PKG-INFO")
        entry.size = len(metadata)
        archive.addfile(entry, io.BytesIO(metadata))
    return f"{base}.tar.gz"
