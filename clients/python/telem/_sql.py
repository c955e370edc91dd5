"""Questions to the service, and their answers as Python has them."""

from __future__ import annotations

import json
import random
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from ._service import Service

if TYPE_CHECKING:
    from ._wire import Answer

FORMATS = {"dicts": "json", "arrow": "arrow"}
NOT_FOUND = 404
RETRY_S, RETRY_S_MAX = 0.05, 1.0
"""First and longest wait before a busy service is asked again, in seconds."""
HUNG_UP_MAX = 3
"""How often a service may hang up instead of answering one question."""
ANSWER_S_MIN = 0.01
"""A service is given that long, in seconds, however late it is."""


class TelemetryError(RuntimeError):
    """telem could not do what it was asked for: no service, one that stays busy, no right to ask, a package that is missing."""


class SqlError(TelemetryError):
    """The service refused the question itself, as it would at every other time. The message says why."""

    status = 400
    """Of HTTP; 404 for a metric or table that is not there."""


class Away(TelemetryError):
    """Nobody is there who could be asked."""


def ask(service: Service, text: str, format: str, timeout_s: float, until: float) -> "Tuple[Any, str]":
    """The rows, and which nodes did not answer (empty: all did). A service that is busy is asked again until the
    monotonic time ``until``, which is where the ``timeout_s`` of the caller end.

    Raises :class:`SqlError` for a question that cannot be answered, :class:`Away` where nobody can be reached and
    :class:`TelemetryError` for everything else: no answer is never an empty one.
    """
    from . import _wire

    body = text.encode("utf-8", "replace")
    hung_up, wait_s = 0, RETRY_S
    while True:
        wire = _wire.Wire(service, max(until - time.monotonic(), ANSWER_S_MIN))
        answer = None
        try:
            answer = wire.post(f"/api/sql?format={FORMATS[format]}", body, bytes_max=None)
            # Only who is busy says when to try again; a query that took too long would do so again.
            if answer.status != 503 or answer.headers.get("Retry-After") is None:
                break
            why = f"{service} is busy: {message(answer)}"
        except _wire.Away as error:
            raise Away(f"{service} does not answer: {error}") from error
        except _wire.Silent as error:
            raise TelemetryError(f"{service} did not answer within {timeout_s:g} s") from error
        except _wire.Unreachable as error:
            hung_up += 1
            why = f"{service} hung up: {error}"
            if hung_up >= HUNG_UP_MAX:
                raise TelemetryError(why) from error
        finally:
            wire.close()
        # Apart from each other, where all ranks of a job ask at the same time.
        pause_s = wait_s * random.uniform(0.5, 1.0)
        if time.monotonic() + pause_s >= until:
            raise TelemetryError(why)
        time.sleep(pause_s)
        wait_s = min(wait_s * 2, RETRY_S_MAX)
    # 404: a table or a metric that is not there. No rows would hide a typing error for ever.
    if answer.status in (400, 404, 413):
        refused = SqlError(message(answer))
        refused.status = answer.status
        raise refused
    if answer.status != 200:
        raise TelemetryError(f"{service} answered with status {answer.status}: {message(answer)}")
    return _rows(service, answer, format), answer.headers.get("X-Telem-Missing") or ""


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


def _rows(service: Service, answer: "Answer", format: str) -> Any:
    try:
        if format == "arrow":
            return import_module("pyarrow.ipc").open_stream(pyarrow().py_buffer(answer.body)).read_all()
        rows: List[Dict[str, Any]] = json.loads(answer.body)
        return rows
    # What pyarrow raises for broken bytes is one too.
    except ValueError as error:
        raise TelemetryError(f"{service} gave no answer that can be read: {error}") from error


def message(answer: "Answer") -> str:
    try:
        return str(json.loads(answer.body)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return answer.body[:500].decode("utf-8", "replace")
