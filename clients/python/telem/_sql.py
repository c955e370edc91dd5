"""Questions to the service, and their answers as Python has them."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from ._service import Service

if TYPE_CHECKING:
    from ._wire import Answer

FORMATS = {"dicts": "json", "arrow": "arrow"}


class TelemetryError(RuntimeError):
    """telem could not do what it was asked for: no service, one that is busy, a package that is missing."""


class SqlError(TelemetryError):
    """The service refused the question itself, as it would at every other time. The message says why."""


def ask(service: Service, text: str, format: str, timeout_s: float) -> "Tuple[Any, str]":
    """The rows, and which nodes did not answer (empty: all did).

    Raises :class:`SqlError` for a question that cannot be answered and :class:`TelemetryError` for everything else.
    """
    from . import _wire

    wire = _wire.Wire(service, timeout_s)
    try:
        answer = wire.post(f"/api/sql?format={FORMATS[format]}", text.encode("utf-8", "replace"), bytes_max=None)
    except _wire.Unreachable as error:
        raise TelemetryError(f"{service} does not answer: {error}") from error
    finally:
        wire.close()
    # 404: a table or a metric that is not there. No rows would hide a typing error for ever.
    if answer.status in (400, 404, 413):
        raise SqlError(_message(answer))
    if answer.status != 200:
        raise TelemetryError(f"{service} answered with status {answer.status}: {_message(answer)}")
    return _rows(answer, format), answer.headers.get("X-Telem-Missing") or ""


def nothing(format: str) -> Any:
    """The answer where nobody answers: no rows."""
    if format == "arrow":
        return pyarrow().table({})
    return []


def pyarrow() -> Any:
    try:
        return import_module("pyarrow")
    except ImportError as error:
        raise TelemetryError("format='arrow' needs the package pyarrow, which is not installed here") from error


def _rows(answer: "Answer", format: str) -> Any:
    if format == "arrow":
        return import_module("pyarrow.ipc").open_stream(pyarrow().py_buffer(answer.body)).read_all()
    rows: List[Dict[str, Any]] = json.loads(answer.body)
    return rows


def _message(answer: "Answer") -> str:
    try:
        return str(json.loads(answer.body)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return answer.body[:500].decode("utf-8", "replace")
