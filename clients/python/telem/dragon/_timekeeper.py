"""Dragon's ``TimeKeeper``: how long parts of a program take in sum, as a metric."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Dict, Optional, Type

from ._telemetry import Telemetry

STOP_S = 5.0
"""How long ``stop()`` waits for the thread, in seconds."""


class _Recorder:
    """Adds the time between entering and leaving to one sum of a :class:`TimeKeeper`."""

    def __init__(self, timekeeper: "TimeKeeper", id: Any, start: Optional[float] = None) -> None:
        self._timekeeper = timekeeper
        self._id = id
        self._start = start

    def __enter__(self) -> "_Recorder":
        if self._start is None:
            self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        start, self._start = self._start, None
        if start is not None:
            self._timekeeper.add(self._id, start)


class TimeKeeper:
    """Sums of seconds by id. With ``recording`` and a name, each sum is logged every ``collection_window`` seconds as the
    metric of that name with the tag ``id``, and begins anew then unless ``clear_all`` is false.

        keeper = TimeKeeper("stages", recording=True)
        with keeper.record("load"):
            load()
    """

    Recorder = _Recorder

    def __init__(
        self, timekeeper_name: str = "", recording: bool = False, collection_window: float = 10.0, clear_all: bool = True
    ) -> None:
        self._name = timekeeper_name
        self._recording = recording
        self._collection_window = collection_window
        self._clear_all = clear_all
        self._timings: Dict[Any, float] = {}
        self._lock = threading.RLock()
        self._stop_event = threading.Event()
        self._thread: Optional[threading.Thread] = None
        self._telemetry: Optional[Telemetry] = None
        if recording and timekeeper_name:
            self.start_telemetry()

    def start_telemetry(self) -> None:
        """Begins to log, where telem is there; called by the constructor."""
        if self._thread is not None:
            return
        telemetry = Telemetry()
        if telemetry.level > 0:
            self._telemetry = telemetry
            self._stop_event.clear()
            self._thread = threading.Thread(target=self._log_now_and_then, name="telem timekeeper", daemon=True)
            self._thread.start()

    def _log_now_and_then(self) -> None:
        while not self._stop_event.wait(self._collection_window):
            self._log()

    def _log(self) -> None:
        with self._lock:
            timings = dict(self._timings)
            if self._clear_all:
                self._timings.clear()
        if self._telemetry is not None:
            for id, seconds in timings.items():
                self._telemetry.add_data(self._name, seconds, tagk="id", tagv=str(id))

    def stop(self) -> None:
        """Logs what is left and ends the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop_event.set()
            thread.join(STOP_S)
            self._log()

    def record(self, id: Any, start: Optional[float] = None) -> "_Recorder":
        """For ``with``; ``start`` is an earlier :meth:`now` to count from."""
        return _Recorder(self, id, start)

    def now(self) -> float:
        return time.perf_counter()

    def add(self, id: Any, start: float, end: Optional[float] = None) -> None:
        """From ``start`` to ``end``, both of :meth:`now`; without ``end``, until now."""
        self.add_elapsed(id, (self.now() if end is None else end) - start)

    def add_elapsed(self, id: Any, elapsed: float) -> None:
        if self._recording:
            with self._lock:
                self._timings[id] = self._timings.get(id, 0) + elapsed

    def reset(self, id: Any) -> None:
        with self._lock:
            self._timings[id] = 0

    def reset_all(self) -> None:
        with self._lock:
            self._timings.clear()

    def get_timings(self) -> Dict[Any, float]:
        with self._lock:
            return dict(self._timings)

    def empty(self) -> bool:
        return not self._timings

    def __str__(self) -> str:
        timings = self.get_timings()
        if not timings:
            return "No times: " + ("nothing was recorded yet" if self._recording else "it was created without recording=True")
        width = max(len(str(id)) for id in timings)
        return "\n".join(f"{str(id):<{width}}  {seconds:.6f} s" for id, seconds in timings.items())
