"""Converts a caller's arguments into what the service accepts: names, numbers, times, and the JSON of points.

Everything here is a pure function or a small value; :class:`Refused` says why something cannot become a point.
"""

from __future__ import annotations

import datetime
import json
import math
import operator
import re
import time
import unicodedata
from typing import Any, Callable, Dict, Iterable, List, Tuple, Union

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
"""Integers are kept exactly within 64 bits; one beyond them is refused rather than rounded."""

INFINITE = "+Inf"
"""The bound of a histogram's last bucket, as everyone writes it."""
HEAD_BYTES_MAX = 8_192
"""Most bytes that the names of a point may take: so that no batch is larger than what the service reads."""

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)
_PLAIN = re.compile(r"[A-Za-z0-9\-_./]+\Z")
_MARKS_REFUSED = re.compile("[\u034f\u0afd-\u0aff\u0b55\u0e47-\u0e4e\u0ecc\u0f3e\u0f3f\u17b4\u17b5\u17c9-\u17d3\u180b-\u180f\u1ce1\u1cf7\uabec\ufe00-\ufe0f]")
"""Marks that stand by themselves in their scripts and are no part of a letter: Unicode does not call them alphabetic."""

Number = Union[int, float]
Tag = Tuple[str, str]
Renamed = Callable[[str, str], None]


class Refused(ValueError):
    """Why a value is not a point. ``kind`` is the name under which it is counted."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def name_of(given: object, what: str) -> str:
    """A name as the service takes it: letters, digits and ``-_./``; any other character becomes ``_``.

    Raises :class:`Refused` for an empty name, or where a metric is named by something else than a text.
    """
    if not isinstance(given, str):
        raise Refused("bad name", f"{what} is a {type(given).__name__}, expected a text")
    if not given:
        raise Refused("bad name", f"{what} is empty")
    if _PLAIN.match(given):
        return given
    return "".join(c if _is_legal(c) else "_" for c in composed(given))


def composed(name: str) -> str:
    """``name`` with each letter and its accents as one character: the two ways to write it look the same."""
    return unicodedata.normalize("NFC", name)


def _is_legal(c: str) -> bool:
    if c.isascii():
        return c.isalnum() or c in "-_./"
    if c.isalpha():
        return True
    # The vowel signs that many scripts need. A subset of what the service takes.
    is_sign = unicodedata.category(c) in ("Mn", "Mc", "Nl") and unicodedata.combining(c) == 0
    return is_sign and c <= "\uffff" and not _MARKS_REFUSED.match(c)


def tags_of(pairs: Iterable[Tuple[object, object]], renamed: Renamed) -> Tuple[Tag, ...]:
    """Tags in the order of their keys. Values may be of any type that ``str`` shows, such as ranks; ``None`` is no tag.

    ``renamed`` is called with what, how it was given and how it is stored, for each name and value that changes.
    """
    named = {}
    for given, value in pairs:
        if value is None:
            continue
        key = name_of(given, "the key of a tag")
        shown = value if isinstance(value, str) else str(value)
        named[key] = name_of(shown, f"the value of tag {key!r}")
        if key != given:
            renamed(f"the tag's name {given!r}", key)
        if named[key] != shown and named[key] != composed(shown):
            renamed(f"tag {key}={shown!r}", named[key])
    return tuple(sorted(named.items()))


def number_of(given: Any) -> Number:
    """An ``int`` within 64 bits or a ``float``, NaN and the infinities included: exactly what was given.

    Takes whatever has one number in it: NumPy's and PyTorch's scalars and arrays of one element, fractions, decimals.
    Raises :class:`Refused` for anything else, and for integers beyond 64 bits.
    """
    if isinstance(given, float):
        return float(given)
    if not isinstance(given, int):
        given = _scalar(given)
        if isinstance(given, float):
            return float(given)
    whole = int(given)
    if not INT_MIN <= whole <= INT_MAX:
        raise Refused("not a number", f"the integer {_short(whole)} lies beyond -2**63 to 2**63-1; log float(...)")
    return whole


def _short(whole: int) -> str:
    return str(whole) if whole.bit_length() <= 128 else f"of {whole.bit_length()} bits"


def _scalar(given: Any) -> Number:
    if isinstance(given, (str, bytes, bytearray)) or type(given).__name__ in ("datetime64", "timedelta64"):
        hint = "convert it with float(...)"
        if isinstance(given, str):
            hint += "; texts are kept by Telemetry.note(text) or Telemetry.config(name=text)"
        raise Refused("not a number", f"a {type(given).__name__} is not a number; {hint}")
    # NumPy shows what is masked as 0.0.
    if type(given).__module__.startswith("numpy.ma") and given.mask.any():
        raise Refused("not a number", "it is masked")
    try:
        # Arrays and tensors first: their `item` knows whether they hold an integer.
        item = getattr(given, "item", None)
        inner = item() if callable(item) else given
        if isinstance(inner, (int, float)):
            return inner
        return operator.index(inner) if hasattr(inner, "__index__") else float(inner)
    except Refused:
        raise
    except Exception as error:
        raise Refused("not a number", f"a {type(given).__name__} is not a single number ({error})") from None


def micros_of(given: object) -> int:
    """A time in microseconds since 1970. Numbers are seconds; a ``datetime`` without a zone is local time, and NumPy's is UTC.

    Raises :class:`Refused` for anything else, and for times before 1970 or beyond 64 bits.
    """
    if type(given).__name__ == "datetime64":
        # NumPy's are UTC.
        inner: Any = given.astype("datetime64[us]").item()  # type: ignore[attr-defined]
        given = inner.replace(tzinfo=datetime.timezone.utc) if inner is not None else math.nan
    if isinstance(given, datetime.datetime):
        aware = given if given.tzinfo is not None else given.astimezone()
        micros = (aware - _EPOCH) // _MICROSECOND
    else:
        try:
            seconds = number_of(given)
        except Refused as refused:
            raise Refused("bad time", f"the timestamp: {refused}; give seconds or a datetime") from None
        if isinstance(seconds, float) and not math.isfinite(seconds):
            raise Refused("bad time", f"the timestamp is {seconds}")
        micros = seconds * 1_000_000 if isinstance(seconds, int) else round(seconds * 1e6)
    if not 0 < micros < INT_MAX:
        raise Refused("bad time", f"the timestamp {given} lies before 1970 or beyond 64 bits")
    return micros


def now_micros() -> int:
    return time.time_ns() // 1_000


class Series:
    """One metric with its tags: the start of the JSON of each of its points, and the latest time that it has used."""

    __slots__ = ("head", "line", "last", "was_told")

    def __init__(self, head: str, line: str = "") -> None:
        self.head = head
        self.line = line
        """The start of its lines in line protocol, if it needs that."""
        self.last = 0
        # Whether a caller ever said a time.
        self.was_told = False


def head_of(metric: str, tags: Tuple[Tag, ...]) -> str:
    """Raises :class:`Refused` where it is too long."""
    shown = json.dumps({"metric": metric, "tags": dict(tags)}, separators=(",", ":"))
    head = shown[:-1] + ',"timestamp":'
    if len(head) > HEAD_BYTES_MAX:
        raise Refused("bad name", f"a metric and its tags take {len(head)} bytes; {HEAD_BYTES_MAX} are sent")
    return head


def line_of(metric: str, tags: Tuple[Tag, ...]) -> str:
    """The same for line protocol. Its names are legal ones, in which nothing needs a backslash."""
    return f"{metric},{','.join(f'{key}={value}' for key, value in tags)} value="


class Moment:
    """The time of one point, or of several that are to have the same: as it was measured or told, and then as it is."""

    __slots__ = ("micros", "is_told", "series", "settled")

    def __init__(self, micros: int, is_told: bool, series: Tuple[Series, ...] = ()) -> None:
        self.micros = micros
        self.is_told = is_told
        self.series = series
        """Those that have a point at this moment; none: the one that asks."""
        self.settled = 0


class Times:
    """Gives each point a time that no other point of its series has, as the store keeps the later of two: the nearest
    free microsecond. Of the clock's times the latest is remembered, as they only grow; of a series whose caller says
    times, which come in any order, all of the last :data:`TOLD_MAX` at least.
    """

    def __init__(self) -> None:
        # Times that were used, and a later one from which on to look for a free one. Two generations: the older one is
        # forgotten as a whole, which costs nothing.
        self._told: Dict[Tuple[Series, int], int] = {}
        self._old: Dict[Tuple[Series, int], int] = {}

    def __len__(self) -> int:
        return len(self._told) + len(self._old)

    def of(self, series: Series, when: Union[int, Moment]) -> int:
        """The time of the next point of ``series``; ``when`` is a measured time, or a moment."""
        if not isinstance(when, int):
            if when.settled == 0:
                when.settled = self._settle(when.series or (series,), when.micros, when.is_told)
            return when.settled
        # As _settle would, without a call: this is the way of most points.
        behind = series.last - when
        if 0 <= behind < SET_BACK_US or series.was_told:
            return self._settle((series,), when, False)
        series.last = when
        return when

    def _settle(self, group: Tuple[Series, ...], micros: int, is_told: bool) -> int:
        first, tried = micros, 0
        while tried != micros:
            tried = micros
            for series in group:
                micros = self._free(series, micros, is_told)
        for series in group:
            series.was_told = series.was_told or is_told
            if not is_told:
                series.last = micros
            if series.was_told:
                self._use(series, first, micros)
        return micros

    def _free(self, series: Series, micros: int, is_told: bool) -> int:
        """``micros``, or as little later as is known to be free in one series."""
        behind = series.last - micros
        # A clock that was set back for good is followed: whole hours a microsecond apart would help nobody.
        if behind == 0 if is_told else 0 <= behind < SET_BACK_US:
            micros = series.last + 1
        while True:
            beyond = self._told.get((series, micros)) or self._old.get((series, micros))
            if beyond is None:
                return micros
            micros = beyond

    def _use(self, series: Series, said: int, used: int) -> None:
        if len(self._told) >= TOLD_MAX:
            self._old, self._told = self._told, {}
        self._told[series, used] = used + 1
        if said != used:
            # The next point of the same second need not try all those that were moved already.
            self._told[series, said] = used + 1


TOLD_MAX = 65_536
"""Times of callers that are remembered at least; twice as many at most, some 30 MB."""
SET_BACK_US = 1_000_000
"""A clock that steps back by less, in microseconds, is waited for."""

Point = Tuple[Series, Number, Union[int, Moment]]
"""A point that waits: its series, its value, and its time: measured in microseconds, or a moment."""


PUT = "/api/put?details&precision=us&non_finite=keep&as_sent"
"""``as_sent``: the tags are those that this process chose; without, the socket would add a ``rank`` where
``process_tag=False`` leaves it out."""
WRITE = "/write?precision=us&as_sent"
"""For series whose tags OpenTSDB's rules do not allow: ``le="+Inf"`` of histograms."""


def bodies_of(points: Iterable[Point], times: Times) -> List[Tuple[str, bytes, int]]:
    """The requests that carry ``points``: path, body, how many. To be called once for each point, in their order: it
    decides the times."""
    shown, lines = [], []
    for series, value, when in points:
        micros = times.of(series, when)
        if series.line:
            lines.append(f"{series.line}{value}i {micros}" if isinstance(value, int) else f"{series.line}{value!r} {micros}")
        else:
            shown.append(f'{series.head}{micros},"value":{_shown(value)}}}')
    bodies = []
    if shown:
        bodies.append((PUT, f"[{','.join(shown)}]".encode("ascii"), len(shown)))
    if lines:
        bodies.append((WRITE, "\n".join(lines).encode("utf-8"), len(lines)))
    return bodies


def _shown(value: Number) -> str:
    shown = repr(value)
    # The three words of `repr` that are no JSON numbers: the service reads them as texts.
    return shown if shown[-1] not in "nf" else f'"{shown}"'


def flattened(data: Any, prefix: str = "", depth_max: int = 16) -> Iterable[Tuple[str, Any]]:
    """The numbers of nested mappings, their keys joined by ``/``. Nesting beyond ``depth_max`` is refused as a value."""
    for key, value in data.items():
        name = f"{prefix}{key}"
        if depth_max > 0 and hasattr(value, "items") and hasattr(value, "keys"):
            yield from flattened(value, f"{name}/", depth_max - 1)
        else:
            yield name, value

