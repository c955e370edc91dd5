"""The compiled core where there is one, else the same in Python. ``TELEM_PURE=1`` chooses Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._lane import Incrementer as Incrementer
    from ._lane import Logger as Logger
    from ._lane import Observer as Observer
    from ._lane import Setter as Setter
    from ._points import Series as Series

    IS_COMPILED = bool(os.environ)
else:
    try:
        if os.environ.get("TELEM_PURE", "") not in ("", "0"):
            raise ImportError("TELEM_PURE says so")
        from ._core import Incrementer, Logger, Observer, Series, Setter

        IS_COMPILED = True
    except ImportError:
        from ._lane import Incrementer, Logger, Observer, Setter
        from ._points import Series

        IS_COMPILED = False
