"""The class for users: levels, tags, and nothing that could stop their loop."""

from __future__ import annotations

import os
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Tuple, Type, Union

from . import _job, _process, _service, _sql
from ._choice import IS_COMPILED, Logger
from ._metrics import Counter, Gauge, Histogram, Metric, Span
from ._points import INT_MAX, INT_MIN, Moment, Refused, composed, flattened, micros_of, name_of, now_micros, number_of, tags_of
from ._sender import EXIT_S, SERIES_MAX, sender_of, tell_after_fork

if TYPE_CHECKING:
    from ._choice import Series
    from ._watch import Watch

LEVEL_MAX = 4
LATEST_S = 30.0
"""Longest wait for the latest value of a metric, in seconds."""


class Telemetry(Logger):
    """Sends custom metrics of this process to the telem of its job, and asks it in SQL.

    Create it in every process that logs, as often as is convenient: all instances share one queue and one background
    thread. The service is found by the variables that ``telem run``, or the user, puts into the environment of the job:
    ``TELEM_CONNECTION`` (a connection file), ``TELEM_SOCKET``, ``TELEM_URL`` and ``TELEM_TOKEN``. If none of them
    is set, nothing is sent, and every call returns at once.

    Logging never waits and never raises: points are put into a bounded queue and sent in batches, every
    0.1 s. Points that cannot be sent are dropped and counted (:attr:`dropped`, :meth:`stats`), and the
    logger ``telem`` reports the first of each kind. Points are sent again while the service is away, as long as the queue holds
    them. Safe in threads, in signal handlers and across ``fork``; the end of the process waits up to 5 s for its
    last points (a process that is killed loses those of the last 0.1 s).

    Every point carries the tags ``host`` (the node), ``rank`` where a launcher says one, and ``pid`` where the rank
    is missing or shared, so that processes never overwrite each other's points. Tags of the caller win.

    The first three arguments are those of Dragon's ``Telemetry`` and are accepted so that its scripts run; telem
    needs none of them.

    address
        The service, instead of the one of the environment: ``http://HOST:PORT``, ``unix:PATH`` or the path of a
        connection file. A relative path is meant from where the process is now.
    tags
        Tags of every point; ``None`` as a value is no tag.
    process_tag
        ``False``, or ``TELEM_PROCESS_TAG=0``: no ``rank`` and no ``pid``. ``"both"``, or ``TELEM_PROCESS_TAG=both``: always
        both (``rank`` where a launcher set one), so that a metric from several processes of a node stays apart whatever
        started them. ``True``: as above, whatever the environment says.
    level
        Instead of ``TELEM_LEVEL``; 1 where neither says anything.
    name, config
        What the run is called and was started with: see :meth:`config`.
    """

    def __init__(
        self,
        metrics_url: Optional[str] = None,
        timeout: Optional[float] = None,
        telem_cfg: Optional[str] = None,
        *,
        address: "Union[str, os.PathLike[str], None]" = None,
        tags: Optional[Mapping[str, object]] = None,
        process_tag: "Union[bool, str, None]" = None,
        level: Optional[int] = None,
        name: Optional[str] = None,
        config: Optional[Mapping[str, object]] = None,
    ) -> None:
        if address is not None:
            address = _service.absolute(os.fsdecode(address))
        self._arguments: Dict[str, Any] = {
            "address": address,
            # A copy: what the caller does to it later changes nothing.
            "tags": dict(tags) if isinstance(tags, Mapping) else tags,
            "process_tag": process_tag,
            "level": level,
        }
        self._process_tag = _process.choice(process_tag, os.environ.get("TELEM_PROCESS_TAG"))
        # On the socket a service adds the rank that a launcher set, unless a request says that it must not.
        is_as_sent = self._process_tag == "none" and _process.rank(os.environ)[0] is not None
        self._sender = sender_of(_service.of_environment(address), address is None, is_as_sent)
        self._level = _level_of(level, os.environ.get("TELEM_LEVEL")) if self._sender.service.is_named else 0
        # A job that was launched without telemetry is asked nothing; one that has finalized may still ask.
        self._is_off = self._level == 0
        self._forked = False
        self._metrics: "weakref.WeakSet[Metric]" = weakref.WeakSet()
        self._watches: "weakref.WeakSet[Watch]" = weakref.WeakSet()
        self._begin()
        if self._level > 0:
            tell_after_fork(self)
        if name is not None or config:
            self.config(config, name=name)

    def _begin(self) -> None:
        self._series: Dict[Any, Series] = {}
        self._aim(self._sender.lane)
        self._base: Dict[str, str] = {}
        if self._level == 0:
            return
        own = _process.tags(os.environ, self._forked, self._process_tag)
        self._base = dict(tags_of([("host", self._sender.service.node()), *own], self._tell_renamed))
        try:
            self._base.update(tags_of((self._arguments["tags"] or {}).items(), self._tell_renamed))
        except Exception as error:  # noqa: BLE001: bad tags must not keep a job from starting
            why = f"the tags given to Telemetry(...) are left out: {error}"
            self._sender.warn("bad tags", why, why)

    def begin_anew(self) -> None:
        """Called in the child of a fork: it is another process, with a ``pid`` of its own."""
        self._forked = True
        self._begin()
        for metric in list(self._metrics):
            metric.bind()

    def __reduce__(self) -> Tuple[Any, ...]:
        # Travels to processes that multiprocessing starts; there it finds the service anew.
        return (_again, (self._arguments,))

    # Logging.

    def add_data(
        self,
        ts_metric_name: str,
        ts_data: Any,
        timestamp: Any = None,
        telemetry_level: int = 1,
        tagk: Optional[str] = None,
        tagv: Any = None,
        *,
        tags: Optional[Mapping[str, object]] = None,
    ) -> None:
        """One point of a metric. The arguments up to ``tagv`` are Dragon's.

        ts_metric_name
            Letters, digits and ``-_./``; any other character is stored as ``_``.
        ts_data
            An ``int`` within 64 bits is kept exactly, a ``float`` bit for bit, NaN and infinities included. Any object
            with one number in it is accepted: scalars and arrays of one element of NumPy or PyTorch, ``Decimal``.
        timestamp
            Seconds since 1970 (``int`` or ``float``) or a ``datetime``; by default now. Kept in microseconds. Points
            of a series never overwrite each other: a time that is taken is moved to the next free microsecond. (That holds
            for the last 65,536 times that the process passed. Beyond that, and between processes that share a series,
            the later of two points with one time replaces the earlier.)
        telemetry_level
            The point is kept where this is at most :attr:`level`.
        tagk, tagv
            One tag, as Dragon has it.
        tags
            Any number of tags; names and values are spelled as metrics are, and ``None`` is no tag.
        """
        try:
            if telemetry_level > self._level:
                return
            series = self._find(ts_metric_name, tagk, tagv, tags)
            kind = type(ts_data)
            if kind is not float and (kind is not int or not INT_MIN <= ts_data <= INT_MAX):
                ts_data = number_of(ts_data)
            if timestamp is None:
                self._sender.put(series, ts_data, now_micros())
            else:
                self._sender.put(series, ts_data, Moment(micros_of(timestamp), True))
        except Exception as error:  # noqa: BLE001: the caller's loop goes on, whatever it gave us
            self._refuse(ts_metric_name, error)

    def log(
        self,
        data: Mapping[str, Any],
        step: Optional[int] = None,
        tags: Optional[Mapping[str, object]] = None,
        *,
        telemetry_level: int = 1,
        timestamp: Any = None,
    ) -> None:
        """Several metrics of one moment, all with the same timestamp. Nested mappings become names with ``/``.

        ``step`` is stored as one more metric, named ``step``, with the same time and tags. SQL shows it beside each
        value (``SELECT step, loss FROM loss``). As a tag it would make a series of each step.
        """
        try:
            if telemetry_level > self._level:
                return
            told = timestamp is not None
            micros = micros_of(timestamp) if told else now_micros()
            points = dict(flattened(data))
            if step is not None:
                points.setdefault("step", step)
        except Exception as error:  # noqa: BLE001: as in add_data
            self._refuse("log", error)
            return
        good = []
        for name, value in points.items():
            try:
                series = self._series.get(name) if not tags else self._tagged(name, None, None, tags)
                if series is None:
                    series = self._new_series(name, name, ())
                good.append((series, number_of(value)))
            except Exception as error:  # noqa: BLE001: as in add_data; the other metrics are kept
                self._refuse(name, error)
        self._sender.put_all(good, Moment(micros, told, tuple({series: None for series, _ in good})))

    def _find(self, metric: str, tagk: Optional[str], tagv: Any, tags: Optional[Mapping[str, object]]) -> "Series":
        if tags is None and (tagk is None or tagv is None):
            return self._series.get(metric) or self._new_series(metric, metric, ())
        return self._tagged(metric, tagk, tagv, tags)

    def _tagged(self, metric: str, tagk: Optional[str], tagv: Any, tags: Optional[Mapping[str, object]]) -> "Series":
        pairs = [] if tagk is None or tagv is None else [(tagk, str(tagv))]
        if tags is not None:
            pairs.extend((key, str(value)) for key, value in tags.items() if value is not None)
        key = (metric, *pairs)
        return self._series.get(key) or self._new_series(key, metric, pairs)

    def _new_series(self, key: Any, metric: str, pairs: Any) -> "Series":
        name = name_of(metric, "the name of a metric")
        if name != metric and name != composed(metric):
            self._tell_renamed(f"metric {metric!r}", name)
        tags = tuple(sorted({**self._base, **dict(tags_of(pairs, self._tell_renamed))}.items()))
        if len(self._series) >= SERIES_MAX:
            self._series.clear()
        series = self._series[key] = self._sender.series(name, tags)
        return series

    def _tell_renamed(self, what: str, stored: str) -> None:
        self._sender.warn("renamed", f"{what} is stored as {stored!r}: names are letters, digits and -_./", what)

    def _refuse(self, name: object, error: Exception) -> None:
        kind = error.kind if isinstance(error, Refused) else "bad argument"
        try:
            self._sender.drop(kind, 1, str(error), f"{name!r}: ")
        except Exception:  # noqa: BLE001: a name that cannot even be shown
            self._sender.drop(kind, 1, "an argument that cannot be shown")

    # Asking.

    def sql(self, text: str, format: str = "dicts", *, timeout: float = 60.0, strict: bool = False) -> Any:
        """The rows of a query, which includes everything that this process has logged before.

        format
            ``"dicts"``: a list with one dict a row, times as RFC 3339 text, NaN and infinities as ``None``.
            ``"arrow"``: a ``pyarrow.Table`` with exact types; needs pyarrow.
        timeout
            Longest wait for the answer, in seconds; a service that is busy is asked again until then.
        strict
            What to do if no service can be reached, or if nodes do not answer. By default there are no or fewer rows, which
            the logger ``telem`` reports (without any, :meth:`stats` counts the query as ``unanswered``); ``True`` raises
            :class:`TelemetryError`. Use it if a job is steered by the answer.

        Raises :class:`SqlError` for a query that cannot be answered, such as one with a typing error or one for a metric that
        nobody has logged yet (the table ``samples`` is always there). Raises :class:`TelemetryError` where the service is there
        and does not answer: it stays busy or silent for ``timeout``, refuses the token, fails; and where ``format="arrow"``
        lacks pyarrow. Where no service is named, or the level is 0, there are no rows.
        """
        if format not in _sql.FORMATS:
            raise ValueError(f"format {format!r} does not exist; there are {', '.join(map(repr, _sql.FORMATS))}")
        if not isinstance(text, str):
            raise TypeError(f"a question is a text, not a {type(text).__name__}")
        if format == "arrow":
            _sql.pyarrow()
        sender = self._sender
        if self._is_off:
            if strict:
                what = "the level is 0" if sender.service.is_named else "TELEM_CONNECTION, TELEM_SOCKET, TELEM_URL are not set"
                raise _sql.TelemetryError(f"there is no telem to ask: {what}")
            return _sql.nothing(format)
        until = time.monotonic() + timeout
        if not sender.flush(min(timeout / 2, EXIT_S)):
            late = f"what was logged before could not be sent to {sender.service} in time"
            if strict:
                raise _sql.TelemetryError(late)
            sender.warn("late", f"a query was asked although {late}")
        try:
            rows, missing = _sql.ask(sender.service, text, format, timeout, until)
        except _sql.Away as error:
            if strict:
                raise
            sender.count_unanswered()
            sender.warn("sql", f"a query had no answer, which counts as no rows: {error}")
            return _sql.nothing(format)
        if missing:
            if strict:
                raise _sql.TelemetryError(f"the answer lacks nodes: {missing}")
            sender.warn("missing", f"an answer lacks nodes: {missing}")
        return rows

    async def asql(self, text: str, format: str = "dicts", *, timeout: float = 60.0, strict: bool = False) -> Any:
        """:meth:`sql` for asynchronous code: it waits in a thread, so that the event loop goes on."""
        # Here: who does not use it need not load it.
        import asyncio

        return await asyncio.to_thread(self.sql, text, format, timeout=timeout, strict=strict)

    def latest(self, metric: str, /, **tags: object) -> Any:
        """The newest value of a metric: of its series with these tags, as ``latest("loss", rank=0)``.

        A number where that is one series; ``None`` where there is none, and without a service. Where there are several, a
        dict, from the tags in which they differ to the numbers: ``{"rank=0": 0.31, "rank=1": 0.29}``. Integers are
        exact, NaN and infinities are floats. Includes what this process has logged before.

        Raises :class:`TelemetryError` where the service is there and does not answer within 30 s.
        """
        name = name_of(metric, "the name of a metric")
        wanted = tags_of(tags.items(), lambda what, stored: None)
        where = "".join(f" AND tags[{_quoted(key)}] = {_quoted(value)}" for key, value in wanted)
        shown = "coalesce(CAST(value_int AS VARCHAR), CAST(value AS VARCHAR))"
        question = f"SELECT tags, last({shown}, ts) AS latest FROM samples WHERE metric = {_quoted(name)}{where} GROUP BY tags"
        rows = self.sql(question, timeout=LATEST_S)
        if not rows:
            return None
        if len(rows) == 1:
            return _number(rows[0]["latest"])
        keys = sorted({key for row in rows for key in row["tags"]})
        apart = [key for key in keys if len({row["tags"].get(key) for row in rows}) > 1]
        found = {_joined(row["tags"], apart): _number(row["latest"]) for row in rows}
        return dict(sorted(found.items()))

    def watch(
        self,
        sql: str,
        every: float = 1.0,
        *,
        timeout: float = 30.0,
        call: Optional[Callable[[Any], Any]] = None,
        format: str = "dicts",
    ) -> "Watch":
        """Asks a question every so many seconds, until :meth:`finalize` or its own ``stop()``.

            for rows in telemetry.watch("SELECT avg(value) AS loss FROM loss WHERE ts > '1m-ago'", every=5): ...
            async for rows in telemetry.watch(...): ...
            watch = telemetry.watch(..., call=decide)       # calls decide(rows), in a thread of its own

        timeout
            Longest wait for each answer, in seconds. Rounds without one give nothing; see :class:`telem.Watch`.

        A question that can never be answered raises :class:`SqlError`; with ``call`` it ends the watch, which
        has it as ``error``.
        """
        from ._watch import Watch

        watch = Watch(self, sql, every, timeout, format, call)
        self._watches.add(watch)
        return watch

    # Metrics as objects.

    def gauge(self, name: str, **more: Any) -> "Gauge":
        """A :class:`telem.Gauge` of this object; ``more`` are its arguments."""
        return Gauge(name, telemetry=self, **more)

    def counter(self, name: str, **more: Any) -> "Counter":
        """A :class:`telem.Counter` of this object; ``more`` are its arguments."""
        return Counter(name, telemetry=self, **more)

    def histogram(self, name: str, **more: Any) -> "Histogram":
        """A :class:`telem.Histogram` of this object; ``more`` are its arguments."""
        return Histogram(name, telemetry=self, **more)

    def span(self, name: str, tags: Optional[Mapping[str, object]] = None, *, level: int = 1) -> "Span":
        """A :class:`telem.Span` of this object: for ``with``, and as a decorator."""
        return Span(name, tags, level, self)

    @property
    def sender(self) -> Any:
        """For the parts of this package."""
        return self._sender

    @property
    def own_tags(self) -> Dict[str, str]:
        """The tags that every point of this object has."""
        return dict(self._base)

    def tell(self, metric: "Metric") -> None:
        """Has ``metric.bind()`` called after a fork and at the end."""
        self._metrics.add(metric)

    def series(self, metric: str, tags: Mapping[str, object], more: Optional[Tuple[str, str]] = None) -> "Series":
        """The series of a metric with this object's tags; ``more`` is a tag that is stored as it is.

        Raises :class:`Refused` for a bad name.
        """
        if more is None:
            return self._tagged(metric, None, None, tags)
        name = name_of(metric, "the name of a metric")
        found = {**self._base, **dict(tags_of(tags.items(), self._tell_renamed))}
        found[more[0]] = more[1]
        return self._sender.series(name, tuple(sorted(found.items())))

    def refuse(self, name: object, error: Exception) -> None:
        """Counts a value that cannot be kept."""
        self._refuse(name, error)

    # The run.

    def config(
        self,
        settings: Optional[Mapping[str, object]] = None,
        *,
        name: Optional[str] = None,
        tags: Optional[Mapping[str, object]] = None,
        **more: object,
    ) -> bool:
        """Keeps what the run was started with: ``config({"lr": 3e-4})`` or ``config(lr=3e-4)``, its name, its tags.

        Shown by ``telem ls`` and the table ``jobs``. What is said again is replaced, the rest stays. Mappings in mappings
        become names with dots; lists are kept as JSON. Waits up to 5 s for the service. Never raises: ``False`` where it
        was not kept, which the logger ``telem`` reports with the reason.
        """
        body: Dict[str, Any] = {"settings": {**(settings or {}), **more}}
        if name is not None:
            body["name"] = str(name)
        if tags:
            body["tags"] = {key: str(value) for key, value in tags.items()}
        return self._say("config", "/api/job", body)

    def note(self, text: str, *, details: str = "", timestamp: Any = None, **fields: object) -> bool:
        """A note on a moment of the run, by default now: seen in Grafana as an annotation, kept with the samples.

        ``fields`` are short texts beside it, such as ``epoch=3``. Waits and fails as :meth:`config` does.
        """
        try:
            millis = (now_micros() if timestamp is None else micros_of(timestamp)) // 1_000
        except Refused as error:
            self._sender.warn("note", f"a note was not kept: {error}")
            return False
        body: Dict[str, Any] = {"startTime": millis, "description": str(text), "notes": str(details)}
        if fields:
            body["custom"] = {key: str(value) for key, value in fields.items()}
        return self._say("note", "/api/annotation", body)

    def _say(self, what: str, path: str, body: Dict[str, Any]) -> bool:
        if self._is_off:
            return False
        try:
            _job.post(self._sender.service, path, body)
        except _job.Unheard as error:
            self._sender.warn(what, f"a {what} was not kept: {error}")
            return False
        return True

    # State.

    @property
    def level(self) -> int:
        """The highest level of points that are kept: 0 without telem, and after :meth:`finalize`."""
        return self._level

    @property
    def sent(self) -> int:
        """Points of this process that the service has stored."""
        return self._sender.sent

    @property
    def dropped(self) -> int:
        """Points of this process that were lost or refused; :meth:`stats` says why."""
        return self._sender.dropped

    def stats(self) -> Dict[str, Any]:
        """Counts of this process: ``sent``, ``dropped``, ``queued``, ``dropped_by_reason``, ``requests``,
        ``connections_lost``, ``unanswered`` (queries without rows because no service could be reached). What was logged is
        always sent, dropped or queued; after :meth:`finalize` nothing is logged."""
        return self._sender.stats()

    def flush(self, timeout: float = EXIT_S) -> bool:
        """Waits up to ``timeout`` seconds until what was logged before is stored or refused. ``False`` where it was
        not, and at once where the service has been away for a second: it stays in the queue then."""
        return self._sender.flush(timeout)

    def start(self, telemetry_level: int = 2) -> None:
        """For Dragon's scripts: telem is started by ``telem run``, not from inside the job. Does nothing."""

    def finalize(self, timeout: float = EXIT_S) -> bool:
        """Flushes and stops: later calls of this object do nothing. Not needed: the end of the process flushes too."""
        for watch in list(self._watches):
            watch.stop()
        flushed = self._sender.flush(timeout)
        self._level = 0
        for metric in list(self._metrics):
            metric.bind()
        return flushed

    def shutdown(self) -> None:
        """Dragon's name for :meth:`finalize`."""
        self.finalize()

    def __enter__(self) -> "Telemetry":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.finalize()

    def __repr__(self) -> str:
        return f"<Telemetry of {self._sender.service} at level {self._level}>"


if IS_COMPILED:
    # The core has ordinary calls, and leaves the others to what is written here.
    Telemetry._add_data = Telemetry.add_data  # type: ignore[attr-defined]
    del Telemetry.add_data


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _number(shown: str) -> Union[int, float]:
    try:
        return int(shown)
    except ValueError:
        return float(shown)


def _joined(tags: Mapping[str, str], keys: Any) -> str:
    return ",".join(f"{key}={tags[key]}" for key in keys if key in tags)


def _again(arguments: Dict[str, Any]) -> Telemetry:
    return Telemetry(**arguments)


def _level_of(given: Optional[int], said: Optional[str]) -> int:
    """A level is 0 to 4; one that cannot be read is 1, at which user metrics are kept."""
    try:
        level = int(said if given is None and said else 1 if given is None else given)
    except (TypeError, ValueError):
        return 1
    return max(0, min(level, LEVEL_MAX))
