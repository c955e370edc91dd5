"""What the program says about its own run: settings, tags, notes."""

from __future__ import annotations

import json
from typing import Any, Dict

from ._service import Service

WAIT_S = 5.0
"""Longest wait for the service, in seconds."""


class Unheard(Exception):
    """The service was not reached, or it refused what was said; the text says why."""


def plain(value: Any) -> Any:
    """A value that JSON does not know: the number or text in it."""
    item = getattr(value, "item", None)
    if callable(item):
        try:
            return item()
        except (TypeError, ValueError):
            pass
    return str(value)


def post(service: Service, path: str, body: Dict[str, Any]) -> None:
    """Raises :class:`Unheard`."""
    from . import _wire

    try:
        # NaN is no JSON: such a setting is the text that Python has for it.
        text = json.dumps(_finite(body), default=plain, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Unheard(f"it is nothing that JSON can hold: {error}") from error
    wire = _wire.Wire(service, WAIT_S)
    try:
        answer = wire.post(path, text)
    except (*_wire.Unreachable, _wire.Away) as error:
        raise Unheard(f"{service} does not answer: {error}") from error
    finally:
        wire.close()
    if answer.status != 200:
        from ._sql import message

        raise Unheard(message(answer))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
