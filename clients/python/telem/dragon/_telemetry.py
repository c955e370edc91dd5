"""Dragon's ``Telemetry``, sending through telem's own client."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from .. import _sql
from .._sender import EXIT_S, tell_after_fork
from .._telemetry import Telemetry as _Client

DRAGON_INFRASTRUCTURE_TELEMETRY_STARTUP_TIMEOUT = 10
"""How long Dragon's own parts wait for telemetry, in seconds."""
LEVEL = "DRAGON_TELEMETRY_LEVEL"
CONFIG = "DRAGON_TELEMETRY_CONFIG"
READY_POLL_S = 0.1
READY_ASK_S = 1.0
"""Longest that one look for the service takes, in seconds."""


class Telemetry(_Client):
    """Dragon's class for metrics of one's own.

    ``add_data`` never waits and never raises; what else it promises is said at :class:`telem.Telemetry`, of which this is
    one: ``log``, ``sql``, ``note``, ``config`` and ``stats`` are there too.

    metrics_url
        Taken and not used, as in Dragon: the service is found by the variables of ``telem run``.
    timeout
        In seconds; raises ``TimeoutError`` where the service has not answered by then. ``None`` does not wait.
    telem_cfg
        The path of a YAML of Dragon. It is put into DRAGON_TELEMETRY_CONFIG, where :class:`OfflineTelemetry` and Dragon's
        own classes read it, and raises ``OSError`` where it cannot be read.

    The level is DRAGON_TELEMETRY_LEVEL, else TELEM_LEVEL, else 1; 0 where no service is named.
    """

    def __init__(
        self,
        metrics_url: Optional[str] = "http://localhost:4243/api/metrics",
        timeout: Optional[float] = None,
        telem_cfg: "Union[str, os.PathLike[str], None]" = None,
        *,
        address: "Union[str, os.PathLike[str], None]" = None,
        tags: Optional[Mapping[str, object]] = None,
        process_tag: Optional[bool] = None,
        level: Optional[int] = None,
        name: Optional[str] = None,
        config: Optional[Mapping[str, object]] = None,
    ) -> None:
        if telem_cfg is not None:
            with open(telem_cfg, encoding="utf-8"):
                os.environ[CONFIG] = os.fsdecode(telem_cfg)
        self._metrics_url = metrics_url
        said = _level_said() if level is None else level
        super().__init__(address=address, tags=tags, process_tag=process_tag, level=said, name=name, config=config)
        if said is not None and self._level > 0:
            # Dragon's levels have no upper end.
            self._level = max(self._level, said)
        if timeout is not None and self._level > 0:
            self._await(timeout)

    def __reduce__(self) -> Tuple[Any, ...]:
        return (_again, (self._arguments,))

    def _await(self, timeout: float) -> None:
        until = time.monotonic() + timeout
        while True:
            left = until - time.monotonic()
            ask_s = min(max(left, READY_POLL_S), READY_ASK_S)
            try:
                _sql.ask(self._sender.service, "SELECT 1", "dicts", ask_s, time.monotonic() + ask_s)
                return
            except _sql.TelemetryError as error:
                if time.monotonic() + READY_POLL_S >= until:
                    raise TimeoutError("Telemetry took longer than expected to start.") from error
            time.sleep(READY_POLL_S)

    @property
    def level(self) -> int:
        """The highest level of points that are kept: 0 without telem."""
        return self._level

    def start(self, telemetry_level: int = 2) -> None:
        """Says, as Dragon does, that telemetry is running already; where it was started with level 0, this process and
        those that it starts log from now on. telem itself is started by ``telem run`` or ``telem serve``."""
        if self._level > 0:
            print(f"Telemetry is already running with telemetry level {self._level}.")
            return
        if not self._sender.service.is_named:
            why = "start() starts no telem: start the program with `telem run --dragon -- PROGRAM`"
            self._sender.warn("start", why, why)
            return
        os.environ[LEVEL] = str(telemetry_level)
        self._arguments["level"] = telemetry_level
        self._level = max(int(telemetry_level), 0)
        self._is_off = self._level == 0
        self._begin()
        if self._level > 0:
            tell_after_fork(self)

    def shutdown(self) -> None:
        """Waits up to 5 s until what was logged is stored. It ends nothing: other parts of the program may still log, and
        telem ends with the command that it runs."""
        self.flush()

    def finalize(self, timeout: float = EXIT_S) -> bool:
        """Dragon's pages call :meth:`shutdown` so. Whether all that was logged is stored."""
        return self.flush(timeout)


def _level_said() -> Optional[int]:
    try:
        return max(int(os.environ[LEVEL]), 0)
    except (KeyError, ValueError):
        return None


def _again(arguments: Dict[str, Any]) -> Telemetry:
    return Telemetry(**arguments)
