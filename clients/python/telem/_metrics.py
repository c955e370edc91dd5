"""Metrics as objects: gauges, counters, histograms, and spans of code.

What is counted is kept here, in this process, and sent once a moment where it changed. Nothing waits for a lock that an
interrupted code may hold: what is added goes to the end of a deque, and whoever comes by adds it up.
"""

from __future__ import annotations

import bisect
import collections
import functools
import itertools
import math
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, Tuple, Type, TypeVar, cast

from . import _default
from ._choice import IS_COMPILED, Incrementer, Observer, Setter
from ._points import INFINITE, INT_MAX, Number, Refused, Tag, micros_of, Moment, name_of, now_micros, number_of
from ._sender import Sender, Totals

if TYPE_CHECKING:
    from ._choice import Series
    from ._telemetry import Telemetry

GATHER_MAX = 1_000
"""Additions that wait to be added up."""
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0)
"""Upper bounds of a histogram that names none: they suit seconds, from one thousandth to a hundred."""
BUCKETS_MAX = 256
"""Most bounds of a histogram."""

Called = TypeVar("Called", bound=Callable[..., Any])
SomeMetric = TypeVar("SomeMetric", bound="Metric")


class Gathered(Totals):
    """Numbers that threads and signal handlers add, none lost and none twice."""

    __slots__ = ("_sender", "_added", "_lock", "_is_told", "is_kept")

    def __init__(self, sender: Sender, is_kept: bool) -> None:
        self._sender = sender
        self._added: Deque[Number] = collections.deque()
        self._lock = threading.Lock()
        self._is_told = False
        self.is_kept = is_kept

    def add(self, number: Number) -> None:
        added = self._added
        added.append(number)
        if not self._is_told and self.is_kept:
            self._is_told = True
            self._sender.put_totals(self)
        elif len(added) > GATHER_MAX:
            self._gather(0.0)

    def _gather(self, wait_s: float) -> None:
        # Only one at a time, and nobody for long: a handler that interrupted who is here leaves its number for later.
        if not (self._lock.acquire(timeout=wait_s) if wait_s > 0 else self._lock.acquire(False)):
            return
        try:
            while True:
                self._take(self._added.popleft())
        except IndexError:
            pass
        finally:
            self._lock.release()

    def _take(self, number: Number) -> None:
        raise NotImplementedError

    def points(self) -> "Sequence[Tuple[Series, Number]]":
        # First: what is added from now on is told again.
        self._is_told = False
        self._gather(1.0)
        return self._shown()

    def _shown(self) -> "Sequence[Tuple[Series, Number]]":
        raise NotImplementedError


def _sendable(total: Number) -> Number:
    return total if isinstance(total, float) or total <= INT_MAX else float(total)


class Count(Gathered):
    __slots__ = ("_series", "_total")

    def __init__(self, sender: Sender, is_kept: bool, series: "Series") -> None:
        super().__init__(sender, is_kept)
        self._series = series
        self._total: Number = 0

    def _take(self, number: Number) -> None:
        self._total += number

    def all_series(self) -> "Sequence[Series]":
        return [self._series]

    def _shown(self) -> "Sequence[Tuple[Series, Number]]":
        return [(self._series, _sendable(self._total))]

    @property
    def total(self) -> Number:
        self._gather(0.1)
        return self._total


class Spread(Gathered):
    __slots__ = ("bounds", "_series", "_counts", "_sum")

    def __init__(self, sender: Sender, is_kept: bool, bounds: Tuple[float, ...], series: "Sequence[Series]") -> None:
        super().__init__(sender, is_kept)
        self.bounds = bounds
        self._series = series
        """One for each bound and the one without, then of the sum and of the count."""
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def _take(self, number: Number) -> None:
        # What is no number is in the last bucket, and not in the sum: it would be no number from then on.
        if number != number:
            self._counts[-1] += 1
        else:
            self._counts[bisect.bisect_left(self.bounds, number)] += 1
            self._sum += number

    def all_series(self) -> "Sequence[Series]":
        return self._series

    def _shown(self) -> "Sequence[Tuple[Series, Number]]":
        counts = list(self._counts)
        shown: List[Number] = [*itertools.accumulate(counts), self._sum, sum(counts)]
        return list(zip(self._series, shown))

    @property
    def count(self) -> int:
        self._gather(0.1)
        return sum(self._counts)

    @property
    def sum(self) -> float:
        self._gather(0.1)
        return self._sum


if IS_COMPILED and not TYPE_CHECKING:
    from . import _core

    class Count(_core.Cell, Totals):  # noqa: F811: the same, with the adding in the core
        __slots__ = ("_sender", "_series")

        def __init__(self, sender, is_kept, series):
            self._sender = sender
            self._series = series
            self.is_kept = is_kept

        def _tell(self):
            self._sender.put_totals(self)

        def all_series(self):
            return [self._series]

        def points(self):
            self._listen()
            return [(self._series, _sendable(self.total))]

    class Spread(_core.Spread, Totals):  # noqa: F811: as above
        __slots__ = ("_sender", "_series", "bounds")

        def __init__(self, sender, is_kept, bounds, series):
            self._sender = sender
            self._series = series
            self.bounds = bounds
            self.is_kept = is_kept
            self._begin(bounds)

        def _tell(self):
            self._sender.put_totals(self)

        def all_series(self):
            return self._series

        def points(self):
            self._listen()
            counts = self.counts
            return list(zip(self._series, [*itertools.accumulate(counts), self.sum, sum(counts)]))

        @property
        def count(self):
            return sum(self.counts)


class Metric:
    """A metric with its tags. Made once, and used as often as there is something to say: nothing here waits or raises.

    name
        Letters, digits and ``-_./``; any other character is stored as ``_``.
    unit, help
        Such as ``"s"`` or ``"bytes"``, and one sentence: in the table ``metrics``, and on axes. What the service knows of the
        metric already stays.
    tags
        Tags of every value, beside those of the :class:`telem.Telemetry`.
    level
        The metric is kept where this is at most the level of the job.
    telemetry
        Whose it is; by default what :func:`telem.init` made, or will make.
    """

    def __init__(
        self,
        name: str,
        *,
        unit: str = "",
        help: str = "",
        tags: Optional[Mapping[str, object]] = None,
        level: int = 1,
        telemetry: "Optional[Telemetry]" = None,
    ) -> None:
        self.name = name
        self.unit = unit
        self.help = help
        self.tags: Dict[str, object] = dict(tags) if isinstance(tags, Mapping) else {}
        self.level = level
        self._given = telemetry
        self._others: "Dict[Tuple[Tuple[str, str], ...], Any]" = {}
        if tags is not None and not isinstance(tags, Mapping):
            self._refused(Refused("bad argument", f"tags are a mapping, not a {type(tags).__name__}"))
        self.bind()
        if telemetry is None:
            _default.follow(self)

    def bind(self) -> None:
        """Called again where the process is another one after a fork, and where :func:`telem.init` is called."""
        telemetry = self._given if self._given is not None else _default.current()
        telemetry.tell(self)
        self._sender = telemetry.sender
        try:
            self._is_kept = 1 <= self.level <= telemetry.level or self.level <= 0 < telemetry.level
            self._open(telemetry)
            if self._is_kept and (self.unit or self.help):
                for name, kind, unit in self._described():
                    self._sender.describe(name_of(name, "the name of a metric"), kind, unit, self.help)
        except Exception as error:  # noqa: BLE001: a bad name must not keep a job from starting
            self._is_kept = False
            self._refused(error)

    def _open(self, telemetry: "Telemetry") -> None:
        raise NotImplementedError

    def _described(self) -> List[Tuple[str, str, str]]:
        """Its metrics as they are stored: name, type, unit."""
        raise NotImplementedError

    def _refused(self, error: Exception) -> None:
        telemetry = self._given if self._given is not None else _default.current()
        telemetry.refuse(self.name, error)

    def tagged(self: SomeMetric, **tags: object) -> SomeMetric:
        """The same metric with more tags: ``requests.tagged(method="get").inc()``. Equal tags give the same object."""
        key = tuple(sorted((name, str(value)) for name, value in tags.items() if value is not None))
        found = self._others.get(key)
        if found is None:
            found = self._others[key] = self._with({**self.tags, **tags})
        return cast(SomeMetric, found)

    def _with(self, tags: Mapping[str, object]) -> Any:
        return type(self)(self.name, unit=self.unit, help=self.help, tags=tags, level=self.level, telemetry=self._given)

    def __repr__(self) -> str:
        shown = "".join(f" {key}={value}" for key, value in self.tags.items())
        return f"<{type(self).__name__} {self.name}{shown}>"


class Gauge(Setter, Metric):
    """A value that goes up and down: each one that is set is a sample."""

    _series: "Optional[Series]" = None

    def _described(self) -> List[Tuple[str, str, str]]:
        return [(self.name, "gauge", self.unit)]

    def _open(self, telemetry: "Telemetry") -> None:
        self._series = None
        self._aim(self._sender.lane, None)
        if self._is_kept:
            self._series = telemetry.series(self.name, self.tags)
            self._aim(self._sender.lane, self._series)

    def set(self, value: Any, timestamp: Any = None) -> None:
        """``value`` is what :meth:`telem.Telemetry.add_data` takes, and so is ``timestamp``, by default now."""
        series = self._series
        if series is None:
            return
        try:
            if type(value) is not float:
                value = number_of(value)
            self._sender.put(series, value, now_micros() if timestamp is None else Moment(micros_of(timestamp), True))
        except Exception as error:  # noqa: BLE001: the caller's loop goes on
            self._refused(error)


class Counter(Incrementer, Metric):
    """A total of this process that only grows: exact, whatever threads add to it. A sample is sent once a moment (0.1 s)
    where it changed. Objects with one name and equal tags share their total."""

    _count: Optional[Count] = None

    def _described(self) -> List[Tuple[str, str, str]]:
        return [(self.name, "counter", self.unit)]

    def _open(self, telemetry: "Telemetry") -> None:
        self._add: Callable[[Number], None] = lambda amount: None
        self._count = None
        self._aim(None)
        series = telemetry.series(self.name, self.tags)
        count = self._sender.totals(("counter",), lambda: Count(self._sender, False, series), series)
        count.is_kept = count.is_kept or self._is_kept
        self._count, self._add = count, count.add
        self._aim(count)

    def inc(self, amount: Number = 1) -> None:
        """``amount`` is a number that is not negative."""
        if type(amount) is int and amount >= 0:
            self._add(amount)
            return
        try:
            amount = number_of(amount)
            if not 0 <= amount < math.inf:
                raise Refused("bad argument", f"a counter only grows: it cannot take {amount}")
            self._add(amount)
        except Exception as error:  # noqa: BLE001: the caller's loop goes on
            self._refused(error)

    @property
    def value(self) -> Number:
        """The total of this process."""
        return 0 if self._count is None else self._count.total


class Histogram(Observer, Metric):
    """How values are spread over buckets. Stored as the totals NAME_bucket with the tag ``le``, the upper bound, included;
    NAME_sum; and NAME_count. They are sent once a moment (0.1 s) where they changed.

    buckets
        Upper bounds in rising order; the last bucket, ``+Inf``, is there by itself.
    """

    def __init__(
        self,
        name: str,
        *,
        buckets: Sequence[float] = BUCKETS,
        unit: str = "",
        help: str = "",
        tags: Optional[Mapping[str, object]] = None,
        level: int = 1,
        telemetry: "Optional[Telemetry]" = None,
    ) -> None:
        self._buckets = buckets
        super().__init__(name, unit=unit, help=help, tags=tags, level=level, telemetry=telemetry)

    def _with(self, tags: Mapping[str, object]) -> Any:
        return Histogram(self.name, buckets=self._buckets, unit=self.unit, help=self.help, tags=tags, level=self.level,
                         telemetry=self._given)

    _spread: Optional[Spread] = None

    def _described(self) -> List[Tuple[str, str, str]]:
        # Buckets and the count are numbers of values.
        parts = (("bucket", ""), ("sum", self.unit), ("count", ""))
        return [(f"{self.name}_{part}", "histogram", unit) for part, unit in parts]

    def _open(self, telemetry: "Telemetry") -> None:
        self._spread = None
        self._aim(None)
        bounds = tuple(float(bound) for bound in self._buckets)
        if bounds and bounds[-1] == math.inf:
            bounds = bounds[:-1]
        is_rising = all(low < high for low, high in zip(bounds, bounds[1:])) and all(map(math.isfinite, bounds))
        if not is_rising or not 1 <= len(bounds) <= BUCKETS_MAX:
            why = f"buckets are 1 to {BUCKETS_MAX} finite bounds in rising order, not {self._buckets!r:.100}"
            raise Refused("bad argument", why)
        count = telemetry.series(f"{self.name}_count", self.tags)

        def make() -> Spread:
            buckets = [telemetry.series(f"{self.name}_bucket", self.tags, ("le", shown)) for shown in [*map(_bound, bounds), INFINITE]]
            return Spread(self._sender, False, bounds, [*buckets, telemetry.series(f"{self.name}_sum", self.tags), count])

        spread = self._sender.totals(("histogram",), make, count)
        if spread.bounds != bounds:
            raise Refused("bad argument", f"it is there already, with the buckets {spread.bounds!r:.100}")
        spread.is_kept = spread.is_kept or self._is_kept
        self._spread = spread
        self._aim(spread)

    def observe(self, value: Any) -> None:
        """One value more. NaN is counted in the last bucket, and leaves the sum."""
        spread = self._spread
        if spread is None:
            return
        try:
            spread.add(value if type(value) is float else number_of(value))
        except Exception as error:  # noqa: BLE001: the caller's loop goes on
            self._refused(error)

    def time(self) -> "Span":
        """A span whose seconds are observed: ``with waits.time(): ...``"""
        return Span(self.name, observe=self.observe)

    @property
    def count(self) -> int:
        return 0 if self._spread is None else self._spread.count

    @property
    def sum(self) -> float:
        return 0.0 if self._spread is None else self._spread.sum


if IS_COMPILED:
    # The core has ordinary calls, and leaves the others to what is written here.
    Gauge._set = Gauge.set  # type: ignore[attr-defined]
    Counter._inc = Counter.inc  # type: ignore[attr-defined]
    Histogram._observe = Histogram.observe  # type: ignore[attr-defined]
    del Gauge.set, Counter.inc, Histogram.observe


def _bound(bound: float) -> str:
    """As short as it can be: 1 and not 1.0."""
    shown = repr(bound)
    shown = shown[:-2] if shown.endswith(".0") else shown
    return shown.replace("e+", "e")


class Span:
    """The seconds that a piece of code takes, as one sample at its end.

        with telem.span("epoch", tags={"fold": 2}): ...

        @telem.span("step")
        async def step(): ...

    A decorated function may be called from any thread and in itself. Exceptions pass, and count as an end. In a ``with``,
    :attr:`seconds` has the time afterwards; one object may stand in a ``with`` again, also inside of itself, on one thread.
    """

    __slots__ = ("name", "seconds", "_tags", "_level", "_whose", "_observe", "_began", "_outer")

    def __init__(
        self,
        name: str,
        tags: Optional[Mapping[str, object]] = None,
        level: int = 1,
        whose: "Optional[Telemetry]" = None,
        observe: Optional[Callable[[float], None]] = None,
    ) -> None:
        self.name = name
        self.seconds = 0.0
        self._tags = tags
        self._level = level
        self._whose = whose
        self._observe = observe
        self._began = 0
        self._outer: Optional[List[int]] = None

    def _ends(self, seconds: float) -> None:
        if self._observe is not None:
            self._observe(seconds)
            return
        whose = self._whose if self._whose is not None else _default.current()
        whose.add_data(self.name, seconds, None, self._level, tags=self._tags)

    def __enter__(self) -> "Span":
        if self._began:
            self._outer = self._outer or []
            self._outer.append(self._began)
        self._began = time.perf_counter_ns()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        now = time.perf_counter_ns()
        if self._began:
            self.seconds = seconds = (now - self._began) / 1e9
            self._began = self._outer.pop() if self._outer else 0
            self._ends(seconds)

    async def __aenter__(self) -> "Span":
        return self.__enter__()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.__exit__(kind, error, trace)

    def __call__(self, function: Called) -> Called:
        import inspect

        ends = self._ends
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def waited(*arguments: Any, **named: Any) -> Any:
                began = time.perf_counter_ns()
                try:
                    return await function(*arguments, **named)
                finally:
                    ends((time.perf_counter_ns() - began) / 1e9)

            return cast(Called, waited)
        if inspect.isasyncgenfunction(function):
            raise TypeError(f"the asynchronous generator {function.__qualname__} is measured by a `with` in it")
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def run_through(*arguments: Any, **named: Any) -> Any:
                began = time.perf_counter_ns()
                try:
                    return (yield from function(*arguments, **named))
                finally:
                    ends((time.perf_counter_ns() - began) / 1e9)

            return cast(Called, run_through)

        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter_ns()
            try:
                return function(*arguments, **named)
            finally:
                ends((time.perf_counter_ns() - began) / 1e9)

        return cast(Called, called)


def span(
    name: str,
    tags: Optional[Mapping[str, object]] = None,
    *,
    level: int = 1,
    telemetry: "Optional[Telemetry]" = None,
) -> Span:
    """See :class:`Span`. ``name`` is that of the metric, whose unit is seconds."""
    return Span(name, tags, level, telemetry)
