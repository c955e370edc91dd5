"""The telemetry of who names none: the module's own functions, and metrics that are made at import."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

if TYPE_CHECKING:
    from ._metrics import Metric
    from ._telemetry import Telemetry
    from ._watch import Watch

_lock = threading.RLock()
_telemetry: "Optional[Telemetry]" = None
_followers: "weakref.WeakSet[Metric]" = weakref.WeakSet()


def current() -> "Telemetry":
    """That of :func:`init`, else one as the environment says."""
    found = _telemetry
    return found if found is not None else _make({}, is_first=True)


def _make(arguments: Mapping[str, Any], is_first: bool) -> "Telemetry":
    from ._telemetry import Telemetry

    global _telemetry
    with _lock:
        if is_first and _telemetry is not None:
            return _telemetry
        made = _telemetry = Telemetry(**arguments)
        for metric in list(_followers):
            metric.bind()
        return made


def follow(metric: "Metric") -> None:
    _followers.add(metric)


def init(
    name: Optional[str] = None,
    config: Optional[Mapping[str, object]] = None,
    tags: Optional[Mapping[str, object]] = None,
    **more: Any,
) -> "Telemetry":
    """Says what the run is called and was started with, and tags of all its points; ``more`` are arguments of
    :class:`telem.Telemetry`. Not needed: without it, the environment says everything. What was made by an earlier call
    goes on sending; metrics of the module are the new one's."""
    return _make({"name": name, "config": config, "tags": tags, **more}, is_first=False)


def finish(timeout: float = 5.0) -> bool:
    """Sends what waits and ends it: watches end, and nothing more is logged until the next :func:`init`. Not needed at
    the end of a process. ``False`` where something could not be sent in ``timeout`` seconds."""
    with _lock:
        ended = _telemetry
    if ended is None:
        return True
    return ended.finalize(timeout)


def log(
    data: Mapping[str, Any],
    step: Optional[int] = None,
    tags: Optional[Mapping[str, object]] = None,
    *,
    telemetry_level: int = 1,
    timestamp: Any = None,
) -> None:
    """See :meth:`telem.Telemetry.log`."""
    current().log(data, step, tags, telemetry_level=telemetry_level, timestamp=timestamp)


def sql(text: str, format: str = "dicts", *, timeout: float = 60.0, strict: bool = False) -> Any:
    """See :meth:`telem.Telemetry.sql`."""
    return current().sql(text, format, timeout=timeout, strict=strict)


async def asql(text: str, format: str = "dicts", *, timeout: float = 60.0, strict: bool = False) -> Any:
    """See :meth:`telem.Telemetry.asql`."""
    return await current().asql(text, format, timeout=timeout, strict=strict)


def note(text: str, *, details: str = "", timestamp: Any = None, **fields: object) -> bool:
    """See :meth:`telem.Telemetry.note`."""
    return current().note(text, details=details, timestamp=timestamp, **fields)


def latest(metric: str, /, **tags: object) -> Any:
    """See :meth:`telem.Telemetry.latest`."""
    return current().latest(metric, **tags)


def watch(
    sql: str,
    every: float = 1.0,
    *,
    timeout: float = 30.0,
    call: Optional[Callable[[Any], Any]] = None,
    format: str = "dicts",
) -> "Watch":
    """See :meth:`telem.Telemetry.watch`."""
    return current().watch(sql, every, timeout=timeout, call=call, format=format)
