"""Telemetry of a job, from inside the job: custom metrics in, SQL out.

    from telem import Telemetry

    telemetry = Telemetry()
    telemetry.add_data("loss", 0.3)
    telemetry.log({"train": {"loss": 0.3, "lr": 1e-3}}, step=7)
    rows = telemetry.sql('SELECT avg(value) AS loss FROM loss')

Without a running telem everything here does nothing, cheaply. See :class:`Telemetry`. Saved runs and running services are
read as data frames by :func:`read`:

    frame = telem.read("runs/a", metrics="train.*")
"""

from typing import TYPE_CHECKING, Any

from ._sql import SqlError, TelemetryError
from ._telemetry import Telemetry

if TYPE_CHECKING:
    from ._read import read

__all__ = ["SqlError", "Telemetry", "TelemetryError", "read"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # A job that logs does not pay for the modules of who reads.
    if name == "read":
        from ._read import read

        return read
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
