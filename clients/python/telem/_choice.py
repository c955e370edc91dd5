"""The compiled core where there is one, else the same in Python. ``TELEM_PURE=1`` chooses Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._lane import Lane as Lane
    from ._points import Series as Series

    IS_COMPILED = False
else:
    try:
        if os.environ.get("TELEM_PURE", "") not in ("", "0"):
            raise ImportError("TELEM_PURE says so")
        from ._core import Lane, Series

        IS_COMPILED = True
    except ImportError:
        from ._lane import Lane
        from ._points import Series

        IS_COMPILED = False
