"""The program ``telem`` itself, for what only it can do: reading and writing saved runs."""

from __future__ import annotations

import os
import shutil

from ._sql import TelemetryError


def find(who: str) -> str:
    """Its path: as the variable TELEM says, else from PATH.

    Raises :class:`TelemetryError`, which names ``who`` needs it.
    """
    program = os.environ.get("TELEM") or "telem"
    found = shutil.which(program)
    if found is None:
        why = f"{who} runs the program '{program}', which is not on PATH; name it in the variable TELEM"
        raise TelemetryError(why)
    return found
