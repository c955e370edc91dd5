"""The sender where the compiled core is: libtelem, the C library of clients/c, keeps points in its rings and sends them by a
thread of its own, which needs nothing of the interpreter. It counts them, too.

libtelem has one service in a process, the one that the environment names, and reaches it by its Unix socket only. So this is
for a :class:`telem.Telemetry` without ``address`` whose service is there when the first one is made. For all others the
sender of _sender.py has the same promises. Totals are made, and notes and descriptions are told, by the thread of that one
here as well, which begins with the first of them.
"""

from __future__ import annotations

import socket
import time
from typing import Any, Dict, List, Optional, Tuple

from . import _core
from ._points import Moment, Number, Tag, now_micros
from ._sender import FLUSH_S_MIN, GRACE_S, POINTS, RETRY_S_MAX, Sender, Totals, _end_with_multiprocessing
from ._service import Service

KINDS = {"counter": 1, "histogram": 2}
NAMED_MS = 5_000
"""Longest that descriptions wait for the series they are about, in milliseconds."""
_is_begun = False


def reaches(service: Service) -> bool:
    """Starts libtelem, if it can send to ``service`` and has no other."""
    global _is_begun
    path = next((address.path for address in service.addresses()), None)
    if _is_begun or path is None:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as tried:
        tried.setblocking(False)
        try:
            tried.connect(path)
        except BlockingIOError:
            pass  # It is there, and many others are as well.
        except OSError:
            return False
    _is_begun = True
    return bool(_core.Lane(None).start())


class NativeSender(Sender):
    def _start(self) -> None:
        super()._start()
        self._has_points = False
        # In the child of a fork there may be those of its parent.
        self._refusals_seen, _ = self.lane.refusals(0)
        # What was given up at the end.
        self._left = 0

    def _new_lane(self) -> Any:
        return _core.Lane(self._points_wait)

    def _points_wait(self) -> None:
        self._has_points = True
        _end_with_multiprocessing(self)
        if self._undescribed:
            super()._points_wait()

    def _named(self, series: Any, metric: str, tags: Tuple[Tag, ...]) -> Any:
        series.name(metric.encode(), tuple(text.encode() for tag in tags for text in tag))
        return series

    def totals(self, kind: Tuple[Any, ...], make: Any, series: Any) -> Any:
        found = super().totals(kind, make, series)
        for one in found.all_series():
            one.kind = KINDS[kind[0]]
        return found

    def describe(self, metric: str, kind: str, unit: str, help: str) -> None:
        super().describe(metric, kind, unit, help)
        if self._has_points and self._undescribed:
            super()._points_wait()

    def put(self, series: Any, value: Number, when: Any) -> None:
        if self._ended:
            self.drop("after the end", 1)
        elif not self.lane.put(series, value, when):
            self._refuse_names(1)

    def put_all(self, points: List[Tuple[Any, Number]], moment: Moment) -> None:
        if self._ended:
            self.drop("after the end", len(points))
            return
        refused = self.lane.put_all(points, moment)
        if refused:
            self._refuse_names(refused)

    def _refuse_names(self, points: int) -> None:
        self.drop("bad name", points, self.lane.error())

    # What becomes of points.

    def flush(self, timeout_s: float) -> bool:
        until = time.monotonic() + max(timeout_s, 0.0)
        if self._thread is not None and not super().flush(timeout_s):
            return False
        if len(self.lane) == 0:
            self._tell()
            return True
        number, found = self.lane.ask_flush(), 0
        while number and found == 0:
            left = until - time.monotonic()
            # In short pieces: whoever interrupts the program is heard.
            found = self.lane.await_flush(number, int(1e3 * min(max(left, FLUSH_S_MIN), 0.05)))
            if found == 0 and self.lane.away() >= GRACE_S:
                self.warn("away", f"{self.service} does not answer ({self.lane.error()}); points wait for it")
                break
            if left <= 0:
                break
        self._tell()
        return found > 0

    def is_settled(self) -> bool:
        return self.events.empty() and len(self.lane) == 0

    def _give_up(self) -> int:
        self._left = int(self.lane.clear())
        return self._left

    def _tell(self) -> None:
        """Reports what the service refused, as there is no thread of Python's that hears it."""
        self._refusals_seen, texts = self.lane.refusals(self._refusals_seen)
        for why in texts:
            self.drop("refused by the service", 0, why)

    @property
    def sent(self) -> int:
        return int(self.lane.counts()["stored"])

    @property
    def dropped(self) -> int:
        return sum(self.stats()["dropped_by_reason"].values())

    def stats(self) -> Dict[str, Any]:
        self._tell()
        counts = self.lane.counts()
        found = super().stats()
        reasons = {
            "refused by the service": counts["refused"],
            "queue full": counts["full"],
            "the service was away for too long": max(counts["unserved"] - self._left, 0),
            "above the level of the job": counts["above_level"],
            "other": counts["other"],
        }
        for kind, count in reasons.items():
            if count:
                found["dropped_by_reason"][kind] = found["dropped_by_reason"].get(kind, 0) + count
        # A reason is told before any point of it is counted.
        found["dropped_by_reason"] = {kind: count for kind, count in found["dropped_by_reason"].items() if count}
        found["sent"], found["queued"] = counts["stored"], counts["waiting"]
        found["dropped"] = sum(found["dropped_by_reason"].values())
        found["connections_lost"] += max(counts["connections"] - 1, 0)
        return found

    # The thread: what is no point of a caller's.

    def _send_points(self, tries_max: Optional[int] = None) -> bool:
        if self._undescribed:
            # Behind the series, which libtelem names without them: both at once would be a race for what is kept.
            self.lane.await_flush(self.lane.ask_flush(), NAMED_MS)
            self._tell_descriptions()
        if self._undescribed and tries_max is None:
            self._wait(RETRY_S_MAX)
            self.events.put(POINTS)
        return True

    def _send_totals(self, totals: Totals, tries_max: Optional[int]) -> bool:
        self.put_all([*totals.points()], Moment(now_micros(), False))
        return self._send_points(tries_max)
