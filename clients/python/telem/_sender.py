"""The points on their way out: a bounded queue, and one thread that empties it.

There is one sender per process and service, however many :class:`telem.Telemetry` there are; where the compiled core
reaches the service by itself, it is the one of _native.py. Logging only puts a
point into the queue; the thread makes batches, sends them, and retries while the service is away. Sending a batch twice
is harmless: a point that is written again with the same time is the same point. The queue, and everything else that is
shared, can be used from signal handlers: nothing here waits for a lock that the interrupted code may hold.

After a fork the child begins with an empty queue, a thread and a connection of its own. The parent sends the points
that it has logged.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import queue
import re
import sys
import threading
import time
import weakref
from importlib import import_module
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, TypeVar, cast

from ._choice import IS_COMPILED, Series
from ._lane import Lane
from ._points import INFINITE, Moment, Number, Tag, Times, bodies_of, head_of, line_of, now_micros
from ._service import Service

QUEUE_POINTS_MAX = 65_536
"""Most points that wait in a process, some 20 MB; one more is dropped and counted."""
BATCH_POINTS_MAX = 5_000
"""Most points in one request."""
BATCH_S = 0.1
"""How long the first point of a batch waits for others, in seconds."""
ANSWER_S = 15.0
"""Longest silence of a service that was sent a batch, in seconds; then the batch is sent again."""
FAILED_TRIES_MAX = 5
"""How often a batch is sent that makes the service fail (5xx). For a busy or absent service the batch waits."""
RETRY_S, RETRY_S_MAX = 0.05, 1.0
"""First and longest wait before the next try, in seconds."""
GRACE_S = 1.0
"""How long a service may be away before flush and exit stop waiting for it, in seconds."""
EXIT_S = 5.0
"""Longest that the end of the process waits for its last points, in seconds."""
FLUSH_S_MIN = 0.01
"""A flush looks that long, in seconds, however little time it has."""
ERRANDS_MAX = 1_000
"""Most notes that wait in a process."""
NOTES_AHEAD_MS = 10_000
"""How far the times of notes may run ahead of the clock, in milliseconds, so that each has its own."""
DESCRIBED_MAX = 10_000
"""Most metrics of a process that have a unit and a help."""
DESCRIBED_AT_ONCE = 500
"""How many of them a request tells of: a few hundred bytes each, and at most 3 MB."""
UNIT_BYTES_MAX, HELP_BYTES_MAX = 256, 4_096
"""What a service takes of each; the rest is cut off."""
DESCRIBE = "/api/describe"
REASONS_MAX = 10
"""Most reasons of a kind that are reported in a process."""
SERIES_MAX = 100_000
"""Most series that are remembered; beyond it the memory of them begins anew."""

_NUMBER = re.compile(r"[0-9][0-9.]*")

log = logging.getLogger("telem")


class Event:
    """What the thread is woken for: here, that points wait."""

    __slots__ = ()


class Marker(Event):
    """Stands behind the points that somebody waits for."""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        self.reached = threading.Event()


class Totals(Event):
    """Something whose points are made when they are sent, such as a counter."""

    def points(self) -> Sequence[Tuple[Series, Number]]:
        """What is true now, all of one moment."""
        raise NotImplementedError

    def all_series(self) -> Sequence[Series]:
        """Those that have it."""
        raise NotImplementedError


class Errand(Event):
    """A request that is no batch of points, such as a note."""

    __slots__ = ("kind", "path", "body")

    def __init__(self, kind: str, path: str, body: bytes) -> None:
        self.kind = kind
        self.path = path
        self.body = body


AnyTotals = TypeVar("AnyTotals", bound=Totals)
POINTS = Event()


class Sender:
    def __init__(self, service: Service) -> None:
        self.service = service
        if service.is_named:
            # Now and in the caller's thread, not at the first batch in ours: a fork in the middle of an import leaves
            # the child with half a module for ever. Without a service there is nothing to send, nor to load.
            import_module("._wire", __package__)
        self._start()

    def _start(self) -> None:
        """As new: in a new process, nothing of the old one is touched."""
        self.events: "queue.SimpleQueue[Event]" = queue.SimpleQueue()
        self.lane: Any = self._new_lane()
        # Makes the thread stop waiting for more points, or for the service.
        self._hurry: "queue.SimpleQueue[None]" = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._thread: Optional[threading.Thread] = None
        self._is_starting = False
        self._wire: Any = None
        # Taken from the lane and not settled yet.
        self._in_hand: Any = []
        self._times = Times()
        self._errands = 0
        self._note_millis = 0
        self._totals: Dict[Tuple[Any, ...], Any] = {}
        self._series: Dict[Tuple[str, Tuple[Tag, ...]], Series] = {}
        self._descriptions: Dict[str, Dict[str, str]] = {}
        # Names in it that the service has not been told yet.
        self._undescribed: List[str] = []
        self._sent = 0
        self._requests = 0
        self._losses = 0
        self._unanswered = 0
        self._dropped: Dict[str, int] = {}
        self._warned: Dict[str, Set[str]] = {}
        self._away_since: Optional[float] = None
        self._ended = False

    def _new_lane(self) -> Any:
        return Lane(QUEUE_POINTS_MAX, self._points_wait)

    # What callers do.

    def note_millis(self, millis: int) -> int:
        """The time of a note, in milliseconds: of two notes of one time the later one would stay."""
        with self._lock:
            if self._note_millis - NOTES_AHEAD_MS <= millis <= self._note_millis:
                millis = self._note_millis + 1
            self._note_millis = millis
            return millis

    def totals(self, kind: Tuple[Any, ...], make: "Callable[[], AnyTotals]", series: Series) -> "AnyTotals":
        """What counts for a series in this process: one, however many objects are about it."""
        key = (*kind, series)
        found = self._totals.get(key)
        if found is None:
            made = make()
            with self._lock:
                found = self._totals.setdefault(key, made)
        return cast("AnyTotals", found)

    def series(self, metric: str, tags: Tuple[Tag, ...]) -> Series:
        """The one series of these names in this process."""
        key = (metric, tags)
        found = self._series.get(key)
        if found is None:
            with self._lock:
                if len(self._series) >= SERIES_MAX:
                    self._series.clear()
                is_plain = ("le", INFINITE) not in tags
                made = self._named(Series(head_of(metric, tags), "" if is_plain else line_of(metric, tags)), metric, tags)
                found = self._series.setdefault(key, made)
        return found

    def _named(self, series: Series, metric: str, tags: Tuple[Tag, ...]) -> Series:
        return series

    def describe(self, metric: str, kind: str, unit: str, help: str) -> None:
        """What a metric is: told with the next points, once. What was said first stays."""
        said = {"type": kind, "unit": cut(unit, UNIT_BYTES_MAX), "help": cut(help, HELP_BYTES_MAX)}
        with self._lock:
            if metric not in self._descriptions and len(self._descriptions) < DESCRIBED_MAX:
                self._descriptions[metric] = said
                self._undescribed.append(metric)

    def put(self, series: Series, value: Number, when: Any) -> None:
        """Never waits: where the queue is full the point is dropped and counted."""
        if self._ended:
            self.drop("after the end", 1)
        elif not self.lane.put(series, value, when):
            self.count_full(1)

    def put_all(self, points: "List[Tuple[Series, Number]]", moment: Moment) -> None:
        """The same for points of one moment."""
        for series, value in points:
            self.put(series, value, moment)

    def count_full(self, points: int) -> None:
        self.drop("queue full", points, f"more than {QUEUE_POINTS_MAX} points wait: they come faster than they can be sent")

    def _points_wait(self) -> None:
        self.events.put(POINTS)
        if self._thread is None:
            self._begin()

    def put_totals(self, totals: Totals) -> None:
        """Sends what ``totals`` are in a moment, once."""
        if self._ended:
            return
        self.events.put(totals)
        if self._thread is None:
            self._begin()

    def put_errand(self, errand: Errand) -> bool:
        """Never waits; ``False`` where too many wait already."""
        if self._ended or self._errands >= ERRANDS_MAX:
            return False
        with self._lock:
            self._errands += 1
        self.events.put(errand)
        if self._thread is None:
            self._begin()
        return True

    def drop(self, kind: str, count: int, why: Optional[str] = None, whose: str = "") -> None:
        """Counts lost points; the first of each reason is reported, with ``whose`` it was."""
        with self._lock:
            self._dropped[kind] = self._dropped.get(kind, 0) + count
        if why is not None:
            self.warn(kind, f"points are dropped ({kind}): {whose}{why}; Telemetry.stats() counts them", why)

    def warn(self, kind: str, message: str, reason: str = "") -> None:
        """Once for each reason in a process, whatever the numbers in it. Never raises, whatever the user made of logging or of warnings."""
        reason = _NUMBER.sub("0", reason)
        with self._lock:
            told = self._warned.setdefault(kind, set())
            if reason in told or len(told) >= REASONS_MAX:
                return
            told.add(reason)
            if len(told) == REASONS_MAX:
                message += " (further reasons of this kind are not reported)"
        try:
            log.warning("telem: %s", message)
        except Exception:  # noqa: BLE001: a handler of the user's is not ours to fail by
            pass

    def count_unanswered(self) -> None:
        with self._lock:
            self._unanswered += 1

    def flush(self, timeout_s: float) -> bool:
        """Whether everything that was put before this call has been settled within ``timeout_s`` seconds: sent, or
        refused by the service. A service that is away for :data:`GRACE_S` is not waited for longer."""
        if self._thread is None:
            return self.is_settled()
        marker, lost_before = Marker(), self._losses
        self.events.put(marker)
        if self._hurry.empty():
            self._hurry.put(None)
        until = time.monotonic() + max(timeout_s, 0.0)
        while True:
            left = until - time.monotonic()
            # A moment even where there is no time: it may be that nothing waits.
            if marker.reached.wait(min(max(left, FLUSH_S_MIN), 0.05)):
                return True
            # Away for long, and just now tried in vain: an outage that ended unseen is no reason to give up.
            away = self._away_since
            is_away = away is not None and time.monotonic() - away >= GRACE_S and self._losses > lost_before
            if left <= 0 or is_away or not self._is_alive():
                return marker.reached.is_set()

    def end(self, timeout_s: float = EXIT_S) -> None:
        """The process ends: sends what waits, counts what cannot be sent, and takes nothing more."""
        if self._ended:
            return
        if not self.is_settled() and not self._is_alive():
            # An interpreter that shuts down may refuse new threads.
            self._drain_here(timeout_s)
        self.flush(timeout_s)
        self._ended = True
        self.lane.close()
        left = self._give_up()
        if left:
            self.drop("not sent before the end", left)
        dropped = self.dropped
        if dropped:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.stats()["dropped_by_reason"].items()))
            self.warn("summary", f"{dropped} of {self.sent + dropped} points were dropped: {kinds}")

    def _give_up(self) -> int:
        """Forgets what waits; how many points that were."""
        return len(self._in_hand) + int(self.lane.clear())

    def is_settled(self) -> bool:
        return self.events.empty() and len(self.lane) == 0 and len(self._in_hand) == 0

    @property
    def sent(self) -> int:
        return self._sent

    @property
    def dropped(self) -> int:
        with self._lock:
            return sum(self._dropped.values())

    def stats(self) -> Dict[str, Any]:
        with self._lock:
            return {
                "sent": self._sent,
                "dropped": sum(self._dropped.values()),
                "queued": len(self.lane) + len(self._in_hand),
                "dropped_by_reason": dict(self._dropped),
                "requests": self._requests,
                "connections_lost": self._losses,
                "unanswered": self._unanswered,
            }

    # The thread.

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _begin(self) -> None:
        if self._is_alive() or self._ended:
            return
        with self._lock:
            # The second: a signal's handler logs while the code that it interrupts starts the thread.
            if self._is_alive() or self._is_starting:
                return
            self._is_starting = True
            thread = threading.Thread(target=self._run, name="telem", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.warn("no thread", f"cannot start a thread ({error}): points wait until the process ends")
            else:
                _end_with_multiprocessing(self)
            # Set in either case: there is nothing to gain from trying at every point.
            self._thread = thread
            self._is_starting = False

    def _run(self) -> None:
        while True:
            self._handle(self.events.get(), BATCH_S)

    def _drain_here(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            try:
                event = self.events.get_nowait()
            except queue.Empty:
                self._send_points(tries_max=2)
                return
            if not self._handle(event, 0.0, tries_max=2):
                return

    def _handle(self, event: Event, window_s: float, tries_max: Optional[int] = None) -> bool:
        """Whether what the event is about was settled; ``False`` only where ``tries_max`` tries were not enough."""
        if isinstance(event, Errand):
            with self._lock:
                self._errands -= 1
            return self._guarded(lambda: self._run_errand(event, tries_max), 0)
        if window_s > 0 and not isinstance(event, Marker):
            self._wait(window_s)
        if isinstance(event, Totals):
            return self._guarded(lambda: self._send_totals(event, tries_max), 0)
        settled = self._send_points(tries_max)
        if isinstance(event, Marker):
            event.reached.set()
        return settled

    def _guarded(self, what: Callable[[], bool], points: int) -> bool:
        """The thread must outlive whatever it meets."""
        try:
            return what()
        except Exception as error:  # noqa: BLE001: see above
            self.drop("failed", points, f"bug in telem: {error!r}")
            return True

    def _send_points(self, tries_max: Optional[int] = None) -> bool:
        """Sends what waits now, in batches; those that come meanwhile tell of themselves."""
        self.lane.listen()
        waiting = len(self._in_hand) + len(self.lane)
        while waiting > 0:
            if len(self._in_hand) == 0:
                self._in_hand = []
                self._in_hand = self.lane.take(min(waiting, BATCH_POINTS_MAX), self._in_hand)
            count = len(self._in_hand)
            if count == 0:
                return True
            if not self._guarded(lambda: self._deliver(self._in_hand, tries_max), count):
                return False
            self._in_hand = []
            waiting -= count
        return True

    def _send_totals(self, totals: Totals, tries_max: Optional[int]) -> bool:
        # What was logged before them is settled first, as points in hand are one batch.
        if not self._send_points(tries_max):
            return False
        points = totals.points()
        moment = Moment(now_micros(), False, tuple(series for series, _ in points))
        self._in_hand = [(series, value, moment) for series, value in points]
        return self._send_points(tries_max)

    def _deliver(self, points: Any, tries_max: Optional[int]) -> bool:
        for path, body, count in bodies_of(points, self._times):
            answer = self._ask_until(path, body, tries_max)
            if answer is None:
                return False
            self._count(answer, count)
        if self._undescribed:
            self._tell_descriptions()
        return True

    def _tell_descriptions(self) -> None:
        """Points do not depend on it: it is tried once with each batch until it is heard, and a refusal ends it."""
        with self._lock:
            names, self._undescribed = self._undescribed[:DESCRIBED_AT_ONCE], self._undescribed[DESCRIBED_AT_ONCE:]
        answer = self._ask(DESCRIBE, json.dumps({name: self._descriptions[name] for name in names}).encode())
        if answer is None:
            with self._lock:
                self._undescribed = names + self._undescribed
        elif answer.status >= 300:
            self.warn("description", f"units and helps are not kept: status {answer.status}: {_message(answer.body)}")

    def _run_errand(self, errand: Errand, tries_max: Optional[int]) -> bool:
        answer = self._ask_until(errand.path, errand.body, tries_max)
        if answer is None:
            return False
        if answer.status >= 300:
            self.drop(errand.kind, 0, f"status {answer.status}: {_message(answer.body)}")
        return True

    def _ask_until(self, path: str, body: bytes, tries_max: Optional[int]) -> Any:
        """Tries until the service accepts or refuses, and gives its last answer; ``None`` only where ``tries_max`` tries
        were not enough."""
        wait_s, failures, tries = RETRY_S, 0, 0
        while True:
            tries += 1
            answer = self._ask(path, body)
            if answer is not None and answer.status < 500:
                self._away_since = None
                return answer
            if answer is not None and answer.status != 503:
                failures += 1
                if failures >= FAILED_TRIES_MAX:
                    return answer
            if tries_max is not None and tries >= tries_max:
                return None
            self._wait(wait_s)
            wait_s = min(wait_s * 2, RETRY_S_MAX)

    def _ask(self, path: str, body: bytes) -> Any:
        """The service's answer, if there is one."""
        from . import _wire

        if self._wire is None:
            self._wire = _wire.Wire(self.service, ANSWER_S)
        self._requests += 1
        # A connection that was idle may have been closed by the other end: that says nothing about the service.
        for is_last in (not self._wire.is_connected, True):
            try:
                return self._wire.post(path, body)
            except _wire.Unreachable as error:
                if not is_last and not isinstance(error, _wire.Silent):
                    continue
                self._losses += 1
                # One that is reached and does not answer in time is slow, not away.
                if isinstance(error, _wire.Silent):
                    self._away_since = None
                elif self._away_since is None:
                    self._away_since = time.monotonic()
                why = f"{self.service} does not answer ({error}); up to {QUEUE_POINTS_MAX} points wait for it"
                self.warn("away", why)
                return None

    def _count(self, answer: Any, points: int) -> None:
        """Counts the results of a batch: the service reports how many points it refused, and why."""
        if answer.status >= 500:
            why = f"the service failed {FAILED_TRIES_MAX} times with status {answer.status}: {_message(answer.body)}"
            self.drop("service failed", points, why)
            return
        if answer.status == 204:
            # Of line protocol, which counts nothing.
            self._sent += points
            return
        try:
            said = json.loads(answer.body)
            good, failed = int(said["success"]), int(said["failed"])
        except (ValueError, TypeError, KeyError):
            kind = "refused by the service"
            self.drop(kind, points, f"status {answer.status}: {_message(answer.body)}")
            return
        self._sent += good
        if failed:
            self.drop("refused by the service", failed)
            for error in said.get("errors") or [{}]:
                why = str(error.get("error", "no reason given"))
                shown = json.dumps(error.get("datapoint"))[:300]
                self.drop("refused by the service", 0, why, f"{shown}: ")

    def _wait(self, seconds: float) -> None:
        try:
            self._hurry.get(timeout=seconds)
        except queue.Empty:
            pass

    def begin_anew(self) -> None:
        """In the child of a fork."""
        wire = self._wire
        self._start()
        if wire is not None:
            wire.close()


def cut(text: str, bytes_max: int) -> str:
    """As much of it as fits, whole characters."""
    return str(text).encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])[:300]
    except (ValueError, TypeError, KeyError):
        return body[:300].decode("utf-8", "replace")


# One sender for each service, for as long as the process lives.

_senders: Dict[Tuple[Optional[str], ...], Sender] = {}
_senders_lock = threading.RLock()
_users: "weakref.WeakSet[Any]" = weakref.WeakSet()


def sender_of(service: Service, is_own: bool = False, is_as_sent: bool = False) -> Sender:
    """``is_own``: the service is the one that the environment names. ``is_as_sent``: it must add no tag to points."""
    key = (*service.key, "as sent") if is_as_sent else service.key
    with _senders_lock:
        sender = _senders.get(key)
        if sender is None:
            sender = _senders[key] = _new_sender(service, is_own and not is_as_sent)
        return sender


def _new_sender(service: Service, is_own: bool) -> Sender:
    if IS_COMPILED and is_own and service.is_named:
        from . import _native

        if _native.reaches(service):
            return _native.NativeSender(service)
    return Sender(service)


def tell_after_fork(user: Any) -> None:
    """Has ``user.begin_anew()`` called in the child of each fork."""
    _users.add(user)


def _after_fork_in_child() -> None:
    global _senders_lock
    _senders_lock = threading.RLock()
    for sender in list(_senders.values()):
        sender.begin_anew()
    for user in list(_users):
        user.begin_anew()


def _at_exit() -> None:
    until = time.monotonic() + EXIT_S
    for sender in list(_senders.values()):
        sender.end(max(until - time.monotonic(), 0.1))


def _end_with_multiprocessing(sender: Sender) -> None:
    """Children of :mod:`multiprocessing` end without :mod:`atexit` where they were forked; it has its own finalizers."""
    util = sys.modules.get("multiprocessing.util")
    process = sys.modules.get("multiprocessing.process")
    if util is not None and process is not None and process.parent_process() is not None:
        util.Finalize(None, sender.end, exitpriority=0)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
