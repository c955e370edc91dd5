"""Samples as a data frame, in one call: of saved runs through the program ``telem``, of a running service in SQL."""

from __future__ import annotations

import datetime
import fnmatch
import logging
import os
import re
import subprocess
import tempfile
import time
from importlib import import_module
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from . import _program, _service, _sql
from ._points import Refused, micros_of

Path = Union[str, "os.PathLike[str]"]
When = Union[str, int, float, datetime.datetime, None]

FRAMES = ("pandas", "polars", "arrow")
NAMED_MAX = 5
"""Metrics that an error names."""
FIXED = ("metric", "node", "ts", "value", "value_int")
"""Columns that are not tags."""


def read(
    path_or_url: "Union[Path, Sequence[Path]]",
    metrics: "Union[str, Sequence[str], None]" = None,
    start: When = None,
    end: When = None,
    as_: Optional[str] = None,
    *,
    strict: bool = False,
    timeout: float = 600.0,
) -> Any:
    """The samples of saved runs or of a running service, a row each.

        frame = telem.read("runs/a", metrics="train.*")

    path_or_url
        Directories of saved runs (one, or several in a list), which the program ``telem`` reads: it must be on PATH, or
        named by the variable TELEM. Or a service: ``http://HOST:PORT`` or ``unix:PATH``.
    metrics
        Names, or patterns with ``*`` and ``?``; all where there are none.
    start, end
        From ``start`` on, and before ``end``: a ``datetime`` (without a zone it is local time), seconds since 1970, RFC 3339,
        or ``"5m-ago"``, which of saved runs counts from their last sample.
    as_
        ``"pandas"``, ``"polars"`` or ``"arrow"``; by default the first of them that is installed. Needs pyarrow.
    strict
        Raise where a node or a database is missing, instead of a warning of the logger ``telem``.

    Columns are ``metric``, ``host``, ``node``, one for each other tag, ``ts`` (UTC, in microseconds), ``value`` (as a float)
    and ``value_int`` (the exact integer, missing where the sample is a float).

    Raises :class:`TelemetryError` where the samples cannot be had, with the reason.
    """
    if as_ is not None and as_ not in FRAMES:
        raise ValueError(f"as_={as_!r} does not exist; there are {', '.join(map(repr, FRAMES))}")
    arrow = _package("pyarrow", "telem.read")
    as_ = as_ or next(frame for frame in FRAMES if frame == "arrow" or _is_installed(frame))
    frames: Any = None if as_ == "arrow" else _package(as_, f"telem.read(as_={as_!r})")
    wanted = [metrics] if isinstance(metrics, str) else list(metrics or [])
    paths = [path_or_url] if isinstance(path_or_url, (str, os.PathLike)) else list(path_or_url)
    named = [os.fspath(path) for path in paths]
    if len(named) == 1 and _is_service(named[0]):
        table = _of_service(arrow, named[0], wanted, start, end, strict, timeout)
    else:
        table = _of_directories(arrow, named, wanted, start, end, strict)
    if as_ == "arrow":
        return table
    if as_ == "polars":
        return frames.from_arrow(table)
    # Else integers beyond 2**53 would be floats where one is missing.
    types = {arrow.int64(): frames.Int64Dtype()}
    return table.to_pandas(types_mapper=types.get)


def _is_installed(package: str) -> bool:
    try:
        import_module(package)
    except ImportError:
        return False
    return True


def _package(package: str, who: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        why = f"{who} needs the package {package}, which is not installed here: pip install {package}"
        raise _sql.TelemetryError(why) from error


def _is_service(named: str) -> bool:
    return named.startswith("unix:") or "://" in named


def _time(when: When, what: str) -> "Union[int, str, None]":
    """Microseconds since 1970, or a text that the service understands."""
    if when is None or (isinstance(when, str) and not re.fullmatch(r"-?\d+(\.\d*)?", when)):
        return when
    try:
        return micros_of(float(when) if isinstance(when, str) else when)
    except Refused as error:
        raise ValueError(f"{what}={when!r}: {error}") from error


def _of_directories(arrow: Any, named: List[str], metrics: List[str], start: When, end: When, strict: bool) -> Any:
    found = _program.find("telem.read of directories")
    command = [found, "export", *(os.path.abspath(one) for one in named), "-o", "-", "--format", "arrow"]
    command += [f"--metric={metric}" for metric in metrics]
    for option, when in (("start", start), ("end", end)):
        time_of = _time(when, option)
        if time_of is not None:
            command.append(f"--{option}={time_of}" + ("us" if isinstance(time_of, int) else ""))
    if strict:
        command.append("--strict")
    # A file, for a pipe that nobody empties would stop the program.
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said)
        table, garbled = None, None
        try:
            assert process.stdout is not None, "it is a pipe"
            try:
                table = import_module("pyarrow.ipc").open_stream(process.stdout).read_all()
            except ValueError as error:
                garbled = error
            process.stdout.close()
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        said.seek(0)
        lines = said.read().decode("utf-8", "replace").splitlines()
    if code != 0 or table is None:
        reason = next((line.split("error: ", 1)[1] for line in lines if line.startswith("error: ")), None)
        raise _sql.TelemetryError(reason or f"telem export ended with {code}: {garbled or ' '.join(lines[-3:])}")
    for line in lines:
        if line.startswith("warning: "):
            logging.getLogger("telem").warning("%s", line[len("warning: ") :])
    return _plain(arrow, table)


def _plain(arrow: Any, table: Any) -> Any:
    """With plain texts in place of views of them, which many functions of pyarrow do not take."""
    fields = [field.with_type(arrow.string()) if field.type == arrow.string_view() else field for field in table.schema]
    return table.cast(arrow.schema(fields))


def _of_service(
    arrow: Any, named: str, metrics: List[str], start: When, end: When, strict: bool, timeout: float
) -> Any:
    service = _service.of_environment(named)
    until = time.monotonic() + timeout
    missing: Dict[str, None] = {}

    def ask(text: str, format: str) -> Any:
        rows, lacking = _sql.ask(service, text, format, timeout, until)
        if lacking and strict:
            raise _sql.TelemetryError(f"the answer lacks nodes: {lacking}")
        if lacking:
            missing[lacking] = None
        return rows

    known = sorted(row["metric"] for row in ask("SELECT DISTINCT metric FROM series", "dicts"))
    chosen = known if not metrics else [name for name in known if any(_matches(name, glob) for glob in metrics)]
    if not chosen:
        some = ", ".join(known[:NAMED_MAX]) + (", ..." if len(known) > NAMED_MAX else "")
        why = f"no metric matches {metrics}; there are {some}" if known else "there are no samples yet"
        raise _sql.TelemetryError(f"{service}: {why}")
    where = [f"metric IN ({', '.join(map(_quoted, chosen))})"] if metrics else []
    for operator, when, what in ((">=", start, "start"), ("<", end, "end")):
        time_of = _time(when, what)
        if time_of is not None:
            shown = f"to_timestamp_micros({time_of})" if isinstance(time_of, int) else _quoted(time_of)
            where.append(f"ts {operator} {shown}")
    text = "SELECT metric, node, tags, ts, value, value_int FROM samples"
    table = ask(text + (f" WHERE {' AND '.join(where)}" if where else "") + " ORDER BY metric, node, ts", "arrow")
    for lacking in missing:
        logging.getLogger("telem").warning("an answer lacks nodes: %s", lacking)
    return _with_tags_as_columns(arrow, table)


def _matches(name: str, glob: str) -> bool:
    # A bracket is itself, as in `telem export`.
    return fnmatch.fnmatchcase(name, glob.replace("[", "[[]"))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _with_tags_as_columns(arrow: Any, table: Any) -> Any:
    """The columns that ``telem export`` writes."""
    compute = import_module("pyarrow.compute")
    text = arrow.string()
    tags = table["tags"].cast(arrow.map_(text, text))
    keys = set()
    for chunk in tags.chunks:
        keys.update(compute.unique(chunk.keys).to_pylist())
    columns: List[Tuple[str, Any]] = [("metric", table["metric"].cast(text))]
    for key in ["host", *sorted(keys - {"host"})]:
        if key == "host":
            columns.append((key, compute.map_lookup(tags, key, "first")))
            columns.append(("node", table["node"].cast(text)))
        else:
            columns.append((_column(key), compute.map_lookup(tags, key, "first")))
    utc = arrow.timestamp("us", "UTC")
    columns.append(("ts", table["ts"].cast(utc)))
    columns.extend((name, table[name]) for name in ("value", "value_int"))
    return arrow.table([column for _, column in columns], names=[name for name, _ in columns])


def _column(key: str) -> str:
    """The column of a tag: of one that is called as a column is, ``tag_`` stands before it."""
    bare = key
    while bare.startswith("tag_"):
        bare = bare[len("tag_") :]
    return f"tag_{key}" if bare.lower() in FIXED else key
