"""Telemetry of a job, from inside the job: custom metrics in, SQL out.

    import telem

    telem.log({"train": {"loss": 0.3, "lr": 1e-3}}, step=7)
    steps = telem.Counter("steps_total")
    steps.inc()
    with telem.span("epoch"): ...
    rows = telem.sql("SELECT avg(value) AS loss FROM \"train/loss\"")

Functions and metrics of the module belong to one :class:`Telemetry`, as the environment or :func:`init` says. Without a running
telem everything here does nothing, cheaply. Saved runs and running services are read as data frames by :func:`read`:

    frame = telem.read("runs/a", metrics="train.*")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._default import asql, finish, init, latest, log, note, sql, watch
from ._metrics import Counter, Gauge, Histogram, Span, span
from ._sql import SqlError, TelemetryError
from ._telemetry import Telemetry

if TYPE_CHECKING:
    from ._logging import LoggingHandler
    from ._read import read
    from ._watch import Watch

__all__ = [
    "Counter",
    "Gauge",
    "Histogram",
    "LoggingHandler",
    "Span",
    "SqlError",
    "Telemetry",
    "TelemetryError",
    "Watch",
    "asql",
    "finish",
    "init",
    "latest",
    "log",
    "note",
    "read",
    "span",
    "sql",
    "watch",
]
__version__ = "0.1.0"

_PLACES = {"LoggingHandler": "_logging", "Watch": "_watch", "read": "_read"}


def __getattr__(name: str) -> Any:
    # A job that logs does not pay for the modules of who reads.
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{place}", __name__), name)
