"""The points on their way out: a bounded queue, and one thread that empties it.

There is one sender per process and service, however many :class:`telem.Telemetry` there are. Logging only puts a
point into the queue; the thread makes batches, sends them, and retries while the service is away. Sending a batch twice
is harmless: a point that is written again with the same time is the same point. The queue, and everything else that is
shared, can be used from signal handlers: nothing here waits for a lock that the interrupted code may hold.

After a fork the child begins with an empty queue, a thread and a connection of its own. The parent sends the points
that it has logged.
"""

from __future__ import annotations

import atexit
import collections
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
from typing import Any, Deque, Dict, List, Optional, Set, Tuple, Union

from ._points import Point, Series, Tag, Times, body_of
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
REASONS_MAX = 10
"""Most reasons of a kind that are reported in a process."""
SERIES_MAX = 100_000
"""Most series that are remembered; beyond it the memory of them begins anew."""

PUT = "/api/put?details&precision=us&non_finite=keep&as_sent"
"""``as_sent``: the tags are those that this process chose; without, the socket would add a ``rank`` where
``process_tag=False`` leaves it out."""

_NUMBER = re.compile(r"[0-9][0-9.]*")

log = logging.getLogger("telem")


class Marker:
    """Stands in the queue behind the points that somebody waits for."""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        self.reached = threading.Event()


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
        self.queue: "queue.SimpleQueue[Union[Point, Marker]]" = queue.SimpleQueue()
        # Makes the thread stop waiting for more points, or for the service.
        self._hurry: "queue.SimpleQueue[None]" = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._thread: Optional[threading.Thread] = None
        self._is_starting = False
        self._wire: Any = None
        # Taken from the queue and not settled yet.
        self._in_hand: Deque[Point] = collections.deque()
        self._times = Times()
        # Those that wait in the queue.
        self._markers: Set[Marker] = set()
        self._series: Dict[Tuple[str, Tuple[Tag, ...]], Series] = {}
        self._sent = 0
        self._requests = 0
        self._losses = 0
        self._unanswered = 0
        self._dropped: Dict[str, int] = {}
        self._warned: Dict[str, Set[str]] = {}
        self._away_since: Optional[float] = None
        self._ended = False

    # What callers do.

    def series(self, metric: str, tags: Tuple[Tag, ...]) -> Series:
        """The one series of these names in this process."""
        key = (metric, tags)
        found = self._series.get(key)
        if found is None:
            with self._lock:
                if len(self._series) >= SERIES_MAX:
                    self._series.clear()
                found = self._series.setdefault(key, Series(metric, tags))
        return found

    def put(self, point: Point) -> None:
        """Never waits: where the queue is full the point is dropped and counted."""
        if self._ended:
            self.drop("after the end", 1)
        elif self.queue.qsize() >= QUEUE_POINTS_MAX:
            self.drop("queue full", 1, f"more than {QUEUE_POINTS_MAX} points wait: they come faster than they can be sent")
        else:
            self.queue.put(point)
            if self._thread is None:
                self._begin()

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
        self._markers.add(marker)
        self.queue.put(marker)
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
        left = len(self._in_hand) + self._drain_points()
        if left:
            self.drop("not sent before the end", left)
        dropped = self.dropped
        if dropped:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self._dropped.items()))
            self.warn("summary", f"{dropped} of {self._sent + dropped} points were dropped: {kinds}")

    def is_settled(self) -> bool:
        return self.queue.empty() and not self._in_hand

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
                "queued": max(self.queue.qsize() - len(self._markers), 0) + len(self._in_hand),
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
            self._settle(self._take_first(self.queue.get(), BATCH_S))

    def _drain_here(self, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            try:
                first = self.queue.get_nowait()
            except queue.Empty:
                return
            if not self._settle(self._take_first(first, 0.0), tries_max=2):
                return

    def _take_first(self, first: Union[Point, Marker], window_s: float) -> Optional[Marker]:
        """Takes ``first`` in hand, and what comes behind it within ``window_s``, up to a batch or to a marker."""
        if isinstance(first, Marker):
            self._markers.discard(first)
            return first
        self._in_hand.append(first)
        if window_s > 0:
            self._wait(window_s)
        return self._take_more()

    def _settle(self, marker: Optional[Marker], tries_max: Optional[int] = None) -> bool:
        """Sends the current batch and then wakes the callers behind ``marker``. Returns whether it was settled."""
        settled = True
        if self._in_hand:
            try:
                settled = self._deliver(list(self._in_hand), tries_max)
            except Exception as error:  # noqa: BLE001: the thread must outlive whatever this batch met
                self.drop("failed", len(self._in_hand), f"bug in telem: {error!r}")
            if settled:
                self._in_hand.clear()
        if marker is not None:
            marker.reached.set()
        return settled

    def _take_more(self) -> Optional[Marker]:
        while len(self._in_hand) < BATCH_POINTS_MAX:
            try:
                item = self.queue.get_nowait()
            except queue.Empty:
                return None
            if isinstance(item, Marker):
                self._markers.discard(item)
                return item
            self._in_hand.append(item)
        return None

    def _deliver(self, points: List[Point], tries_max: Optional[int]) -> bool:
        """Tries until the batch is accepted or refused; ``False`` only where ``tries_max`` tries were not enough."""
        body = body_of(points, self._times)
        wait_s, failures, tries = RETRY_S, 0, 0
        while True:
            tries += 1
            answer = self._ask(body)
            if answer is not None and answer.status < 500:
                self._away_since = None
                self._count(answer, len(points))
                return True
            if answer is not None and answer.status != 503:
                failures += 1
                if failures >= FAILED_TRIES_MAX:
                    why = f"the service failed {failures} times with status {answer.status}: {_message(answer.body)}"
                    self.drop("service failed", len(points), why)
                    return True
            if tries_max is not None and tries >= tries_max:
                return False
            self._wait(wait_s)
            wait_s = min(wait_s * 2, RETRY_S_MAX)

    def _ask(self, body: bytes) -> Any:
        """The service's answer, if there is one."""
        from . import _wire

        if self._wire is None:
            self._wire = _wire.Wire(self.service, ANSWER_S)
        self._requests += 1
        # A connection that was idle may have been closed by the other end: that says nothing about the service.
        for is_last in (not self._wire.is_connected, True):
            try:
                return self._wire.post(PUT, body)
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

    def _drain_points(self) -> int:
        points = 0
        while True:
            try:
                points += not isinstance(self.queue.get_nowait(), Marker)
            except queue.Empty:
                return points

    def begin_anew(self) -> None:
        """In the child of a fork."""
        wire = self._wire
        self._start()
        if wire is not None:
            wire.close()


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])[:300]
    except (ValueError, TypeError, KeyError):
        return body[:300].decode("utf-8", "replace")


# One sender for each service, for as long as the process lives.

_senders: Dict[Tuple[Optional[str], ...], Sender] = {}
_senders_lock = threading.RLock()
_users: "weakref.WeakSet[Any]" = weakref.WeakSet()


def sender_of(service: Service) -> Sender:
    with _senders_lock:
        sender = _senders.get(service.key)
        if sender is None:
            sender = _senders[service.key] = Sender(service)
        return sender


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
