"""Where the example finds telem: installed, or in the checkout that it lies in."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
CLIENTS = HERE.parents[1] / "clients"

try:
    from telem import Telemetry
except ImportError:
    sys.path.insert(0, str(CLIENTS / "python"))
    from telem import Telemetry

__all__ = ["CLIENTS", "HERE", "Telemetry"]
