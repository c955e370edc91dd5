"""Dragon's telemetry classes, answered by telem: under srun, mpirun, plain Python, and in Dragon's own runtime.

    from telem.dragon import Telemetry, AnalysisClient, Detector

Names, arguments, errors and answers are those of ``dragon.telemetry``; none of it needs the package ``dragonhpc``.
``telem run --dragon`` serves them under the name ``dragon.telemetry`` too: see :mod:`telem.dragon._place`.
"""

from importlib import import_module
from os.path import dirname, join
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._analysis import AnalysisClient
    from ._groups import CollectorDetectorGroup, CollectorGroup, Detector, current_gpu
    from ._offline import OfflineTelemetry, start_offline_telemetry
    from ._slow import SlowGPUDetector
    from ._telemetry import DRAGON_INFRASTRUCTURE_TELEMETRY_STARTUP_TIMEOUT, Telemetry
    from ._timekeeper import TimeKeeper
    from ._widget import DragonTelemetryWidget

_PLACES = {
    "AnalysisClient": "_analysis",
    "CollectorDetectorGroup": "_groups",
    "CollectorGroup": "_groups",
    "DRAGON_INFRASTRUCTURE_TELEMETRY_STARTUP_TIMEOUT": "_telemetry",
    "Detector": "_groups",
    "DragonTelemetryWidget": "_widget",
    "OfflineTelemetry": "_offline",
    "SlowGPUDetector": "_slow",
    "Telemetry": "_telemetry",
    "TimeKeeper": "_timekeeper",
    "current_gpu": "_groups",
    "start_offline_telemetry": "_offline",
}

HOOK = join(dirname(__file__), "hook")
"""The directory that, as the first of PYTHONPATH, serves these classes as ``dragon.telemetry``."""

__all__ = [
    "AnalysisClient",
    "CollectorDetectorGroup",
    "CollectorGroup",
    "DRAGON_INFRASTRUCTURE_TELEMETRY_STARTUP_TIMEOUT",
    "Detector",
    "DragonTelemetryWidget",
    "HOOK",
    "OfflineTelemetry",
    "SlowGPUDetector",
    "Telemetry",
    "TimeKeeper",
    "current_gpu",
    "start_offline_telemetry",
]


def __getattr__(name: str) -> Any:
    # Who only logs does not pay for the widget and the detectors.
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{place}", __name__), name)
    globals()[name] = found
    return found
