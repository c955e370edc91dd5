"""The points that wait, between those who log and the thread that sends. With libtelem its rings have them: see _native.py."""

from __future__ import annotations

import collections
from typing import Any, Callable, Deque, List, Optional

from ._points import Point, Series


class Lane:
    """A bounded queue of points. ``tell`` is called where the first point comes, and again after :meth:`listen`.

    Safe for any number of threads and signal handlers that put, and one thread that takes: a deque's own steps are whole.
    """

    __slots__ = ("_points", "_points_max", "_tell", "_is_told", "_is_closed")

    def __init__(self, points_max: int, tell: Callable[[], None]) -> None:
        self._points: Deque[Point] = collections.deque()
        self._points_max = points_max
        self._tell = tell
        self._is_told = False
        self._is_closed = False

    def put(self, series: Any, value: Any, when: Any) -> bool:
        """Never waits; ``False`` where there is no room."""
        points = self._points
        if len(points) >= self._points_max or self._is_closed:
            return False
        points.append((series, value, when))
        if not self._is_told:
            self._is_told = True
            self._tell()
        return True

    def listen(self) -> None:
        """To be called before points are taken: one that comes from now on is told again."""
        self._is_told = False

    def __len__(self) -> int:
        return len(self._points)

    def take(self, count_max: int, hand: List[Any]) -> Any:
        """As many points as there are, in their order. ``hand`` holds them meanwhile, so that no count misses them."""
        points = self._points
        while len(hand) < count_max:
            try:
                hand.append(points.popleft())
            except IndexError:
                break
        return hand

    def close(self) -> None:
        """From now on there is no room."""
        self._is_closed = True

    def clear(self) -> int:
        """Forgets all of them; how many there were."""
        count = 0
        while self._points:
            try:
                self._points.popleft()
            except IndexError:
                break
            count += 1
        return count


# The bases of classes whose calls the compiled core has too: here they have nothing to add to.


class Logger:
    """Of :class:`telem.Telemetry`."""

    _level: int

    def _aim(self, lane: Lane) -> None:
        """Where points go."""


class Setter:
    """Of :class:`telem.Gauge`."""

    _series: Optional[Series]

    def _aim(self, lane: Lane, series: Optional[Series]) -> None:
        """Where values go, and for which series; ``None``: nowhere."""


class Incrementer:
    """Of :class:`telem.Counter`."""

    def _aim(self, total: Any) -> None:
        """Where it is counted; ``None``: nowhere."""


class Observer(Incrementer):
    """Of :class:`telem.Histogram`."""
