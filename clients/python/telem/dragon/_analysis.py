"""Dragon's ``AnalysisClient``: what the job has measured, asked from inside the job."""

from __future__ import annotations

import itertools
import math
import os
import time
from typing import Any, Dict, List, Optional, Set, Tuple, Union

from .. import _service, _sql
from .._points import INT_MAX, Refused, name_of
from .._sender import EXIT_S, sender_of
from . import _runtime

CONNECT_S = 60.0
"""How long ``connect()`` tries, in seconds; Dragon's waits for ever."""
CONNECT_POLL_S = 0.1
ANSWER_S = 60.0
"""Longest wait for one answer, in seconds."""
WINDOW_S = 300
"""What ``get_data`` looks back without a ``start_time``, in seconds."""
UNCONNECTED = "Unable to make a request without first connecting to the server."
SAVED = "TELEM_SAVED"
"""The variable in which ``telem run`` says where the job is saved."""

_requests = itertools.count(1)


class AnalysisClient:
    """Asks the telem of the job, of every node and from every node: agents pass the question on to the head.

    timeout
        Longest wait for an answer, in seconds. Then ``TelemetryError`` is raised, a ``RuntimeError``.
    address
        The service, instead of the one of the environment, as for :class:`telem.Telemetry`.
    """

    def __init__(
        self, *, timeout: float = ANSWER_S, address: "Union[str, os.PathLike[str], None]" = None
    ) -> None:
        named = None if address is None else _service.absolute(os.fsdecode(address))
        self._service = _service.of_environment(named)
        self._timeout_s = timeout
        self._is_connected = False

    def connect(self, timeout: Optional[float] = None) -> None:
        """Waits until the service answers: up to ``timeout`` seconds, 60 by default. Raises ``RuntimeError``."""
        until = time.monotonic() + (CONNECT_S if timeout is None else timeout)
        while True:
            left = max(until - time.monotonic(), _sql.ANSWER_S_MIN)
            try:
                if not self._service.is_named:
                    why = "TELEM_CONNECTION, TELEM_SOCKET, TELEM_URL are not set; start the program with `telem run`"
                    raise _sql.TelemetryError(why)
                _sql.ask(self._service, "SELECT 1", "dicts", left, time.monotonic() + left)
            except _sql.TelemetryError as error:
                if not self._service.is_named or time.monotonic() + CONNECT_POLL_S >= until:
                    why = f"Unable to get request queue due to the following exception:\n {error}\n"
                    raise RuntimeError(why) from error
                time.sleep(CONNECT_POLL_S)
            else:
                self._is_connected = True
                return

    def get_data(
        self,
        metrics: "Union[str, List[str]]",
        tags: "Union[str, List[str], None]" = None,
        start_time: Optional[float] = None,
    ) -> List[Dict[str, Any]]:
        """A dict for each metric, host and combination of the values of ``tags``, in the order of the hosts:
        ``{"metric": ..., "tags": {"host": ..., ...}, "aggregateTags": [], "dps": {"1722010526": 0.58, ...}}``.

        Keys are whole seconds; of several points of a second, and of series that differ in other tags only, the
        latest counts. (SQL has them all: :meth:`telem.Telemetry.sql`.) Series that lack one of ``tags`` are left out.

        start_time
            Seconds since 1970; without it, the last five minutes. Points of that second count.

        Raises ``RuntimeError`` before :meth:`connect` and where no answer comes, ``AttributeError`` for other types.
        """
        self._check()
        if not isinstance(tags, (str, list, type(None))):
            raise AttributeError("Request tags is neither a string nor a list.")
        if not isinstance(metrics, (str, list)):
            raise AttributeError("Request metrics is neither a string nor a list.")
        wanted = [metrics] if isinstance(metrics, str) else metrics
        keys = ["host"] if tags is None else [tags] if isinstance(tags, str) else tags
        since = time.time() - WINDOW_S if start_time is None else start_time
        try:
            names = [name_of(metric, "the name of a metric") for metric in wanted]
            keys = [name_of(key, "the key of a tag") for key in keys]
            micros = min(max(math.floor(float(since)) * 1_000_000, 0), INT_MAX)
        except (Refused, TypeError, ValueError, OverflowError) as error:
            raise AttributeError(f"{error}") from error
        return self._lines(names, [key for key in dict.fromkeys(keys) if key != "host"], micros) if names else []

    def _lines(self, metrics: List[str], keys: List[str], micros: int) -> List[Dict[str, Any]]:
        columns = ["metric", "coalesce(host, node) AS host", *(f"tags[{_quoted(key)}] AS t{n}" for n, key in enumerate(keys))]
        where = [f"metric IN ({', '.join(map(_quoted, metrics))})", f"ts >= to_timestamp_micros({micros})"]
        where += [f"tags[{_quoted(key)}] IS NOT NULL" for key in keys]
        groups = ", ".join(str(n + 1) for n in range(len(columns) + 1))
        text = (
            f"SELECT {', '.join(columns)}, to_unixtime(ts) AS s, last(value, ts) AS v FROM samples "
            f"WHERE {' AND '.join(where)} GROUP BY {groups} ORDER BY {groups}"
        )
        lines: Dict[Tuple[Any, ...], Dict[str, Any]] = {}
        for row in self._ask(text):
            shown = [row["host"] or "", *(row[f"t{n}"] for n in range(len(keys)))]
            key = (row["metric"], *shown)
            line = lines.get(key)
            if line is None:
                named = dict(zip(["host", *keys], shown))
                line = lines[key] = {"metric": row["metric"], "tags": named, "aggregateTags": [], "dps": {}}
            # JSON has no NaN.
            line["dps"][str(row["s"])] = math.nan if row["v"] is None else row["v"]
        return sorted(lines.values(), key=lambda line: line["tags"]["host"])

    def get_metrics(self) -> Set[str]:
        """The names of all metrics of the job, telem's own among them. Raises ``RuntimeError`` as :meth:`get_data` does."""
        self._check()
        return {row["metric"] for row in self._ask("SELECT DISTINCT metric FROM series")}

    def db_dump(self) -> List[Dict[str, Any]]:
        """Where the job is saved, in the shape of Dragon's answer, one dict a node: nothing is copied, as telem saves a
        job while it runs. ``status`` is ``"error"`` where it is not saved, and the message says how to have it saved."""
        self._check()
        saved = os.environ.get(SAVED)
        if saved:
            status = "success"
            message = f"telem saves the job while it runs, in {saved}; read it with `telem sql {saved}` or `telem replay {saved}`"
        else:
            status = "error"
            message = "the job is not saved, or it was not started by `telem run`; start it with `telem run --save DIR`"
        now, number = int(time.time()), next(_requests)
        nodes = [row["node"] for row in self._ask("SELECT node FROM nodes ORDER BY node")]
        result = {"status": status, "message": message}
        return [
            {"type": "dump", "start": now, "req_id": f"{number}_{node}", "host": node, "result": dict(result)} for node in nodes
        ]

    def reboot(
        self,
        *,
        exclude_huids: Optional[List[int]] = None,
        exclude_hostnames: "Union[str, List[str], None]" = None,
    ) -> None:
        """Restarts Dragon's runtime without these nodes. Raises ``RuntimeError`` where it does not run."""
        names = [exclude_hostnames] if isinstance(exclude_hostnames, str) else exclude_hostnames
        _runtime.reboot(exclude_huids, names)

    def _check(self) -> None:
        if not self._is_connected:
            raise RuntimeError(UNCONNECTED)

    def _ask(self, text: str) -> List[Dict[str, Any]]:
        """Raises :class:`telem.TelemetryError`: no answer is never an empty one. Nodes that do not answer are told."""
        until = time.monotonic() + self._timeout_s
        sender = sender_of(self._service)
        # What this process has added before is part of the answer.
        sender.flush(min(self._timeout_s / 2, EXIT_S))
        rows, missing = _sql.ask(self._service, text, "dicts", self._timeout_s, until)
        if missing:
            sender.warn("missing", f"an answer lacks nodes: {missing}")
        found: List[Dict[str, Any]] = rows
        return found


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

