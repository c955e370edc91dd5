"""A question that is asked again and again."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any, AsyncIterator, Callable, Iterator, Optional

from . import _sql

if TYPE_CHECKING:
    from ._telemetry import Telemetry

EVERY_S_MIN = 0.01
"""Questions do not follow each other faster, in seconds."""


class Watch:
    """What :meth:`telem.Telemetry.watch` gives: the answers, to be had by ``for`` or ``async for``.

    It ends with :meth:`stop`, with :func:`telem.finish` and :meth:`telem.Telemetry.finalize`, and at once where there is no
    telem. A round without an answer (the service is busy or away, or nobody has logged the metric yet) gives
    nothing, is counted in :attr:`missed` and is reported once by the logger ``telem``.
    """

    def __init__(
        self, telemetry: "Telemetry", sql: str, every: float, timeout: float, format: str, call: Optional[Callable[[Any], Any]]
    ) -> None:
        self._telemetry = telemetry
        self._sql = sql
        self._every_s = max(float(every), EVERY_S_MIN)
        self._timeout_s = timeout
        self._format = format
        self._ended = threading.Event()
        self._next = time.monotonic()
        self.missed = 0
        """Rounds without an answer."""
        self.error: Optional[BaseException] = None
        """What ended the calls of a function: an error of the question, or what the function raised."""
        self._thread: Optional[threading.Thread] = None
        if telemetry.level == 0:
            self._ended.set()
        elif call is not None:
            self._thread = threading.Thread(target=self._call, args=(call,), name="telem watch", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends it; a wait for the next round ends at once."""
        self._ended.set()

    @property
    def is_ended(self) -> bool:
        return self._ended.is_set()

    def join(self, timeout: Optional[float] = None) -> bool:
        """Waits until the calls of a function have ended."""
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def __iter__(self) -> Iterator[Any]:
        while not self._ended.wait(self._pause()):
            found, rows = self._ask()
            if found and not self._ended.is_set():
                yield rows

    async def __aiter__(self) -> AsyncIterator[Any]:
        while not self._ended.is_set():
            # In short pieces: the end may come from another thread.
            pause_s = self._pause(books=False)
            if pause_s > 0:
                await asyncio.sleep(min(pause_s, 0.05))
                continue
            self._pause()
            found, rows = await asyncio.to_thread(self._ask)
            if found and not self._ended.is_set():
                yield rows

    def _pause(self, books: bool = True) -> float:
        """Seconds until the next round. Rounds that a slow answer or a slow reader passed are left out."""
        now = time.monotonic()
        pause_s = max(self._next - now, 0.0)
        if books:
            self._next = max(self._next, now) + self._every_s
        return pause_s

    def _ask(self) -> Any:
        try:
            return True, self._telemetry.sql(self._sql, self._format, timeout=self._timeout_s, strict=True)
        except _sql.SqlError as error:
            if error.status != _sql.NOT_FOUND:
                self._ended.set()
                raise
            self._miss(error)
        except _sql.TelemetryError as error:
            self._miss(error)
        return False, None

    def _miss(self, error: Exception) -> None:
        self.missed += 1
        if not self._ended.is_set():
            self._telemetry.sender.warn("watch", f"a watch had no answer and asks again: {error}", str(error))

    def _call(self, call: Callable[[Any], Any]) -> None:
        try:
            for rows in self:
                call(rows)
        except Exception as error:  # noqa: BLE001: told by the logger, as nobody else can hear it
            self.error = error
            self._telemetry.sender.warn("watch", f"a watch has ended: {error!r}", repr(error))
        finally:
            self._ended.set()
