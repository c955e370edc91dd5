"""Telemetry of a job, from inside the job: custom metrics in, SQL out.

    from telem import Telemetry

    telemetry = Telemetry()
    telemetry.add_data("loss", 0.3)
    telemetry.log({"train": {"loss": 0.3, "lr": 1e-3}}, step=7)
    rows = telemetry.sql('SELECT avg(value) AS loss FROM loss')

Without a running telem everything here does nothing, cheaply. See :class:`Telemetry`.
"""

from ._sql import SqlError, TelemetryError
from ._telemetry import Telemetry

__all__ = ["SqlError", "Telemetry", "TelemetryError"]
__version__ = "0.1.0"
