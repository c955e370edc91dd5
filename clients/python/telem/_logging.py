"""Records of :mod:`logging` as notes of the run, and how many of each level there were."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional

from . import _default
from ._metrics import Counter
from ._sender import Errand

if TYPE_CHECKING:
    from ._telemetry import Telemetry

LEFT_OUT = "log_records_left_out_total"
TEXT_MAX = 500
"""Most characters of a note's text, and as many of a field."""
DETAILS_MAX = 8_000
"""Most characters of what stands behind it, such as a traceback."""


class LoggingHandler(logging.Handler):
    """Makes notes of log records, which Grafana shows as annotations, and counts them.

        logging.getLogger().addHandler(telem.LoggingHandler(level=logging.WARNING))

    Never waits: notes go out behind the points that were logged before. At most ``burst`` come at once and ``per_minute``
    in a minute after that; the next note says how many records were left out. The counter ``log_records_total`` with the
    tag ``level`` counts all records, and ``log_records_left_out_total`` those that are in no note. Records of the logger
    ``telem`` itself are none.
    """

    def __init__(
        self,
        level: "int | str" = logging.WARNING,
        *,
        per_minute: float = 60.0,
        burst: int = 20,
        counter: str = "log_records_total",
        tags: Optional[Mapping[str, object]] = None,
        telemetry: "Optional[Telemetry]" = None,
    ) -> None:
        super().__init__(level)
        self._given = telemetry
        self._records = Counter(counter, tags=tags, unit="records", help="log records, by level", telemetry=telemetry)
        self._left = Counter(LEFT_OUT, tags=tags, unit="records", help="log records that are in no note", telemetry=telemetry)
        self._a_second = max(per_minute, 0.0) / 60
        self._burst = max(float(burst), 1.0)
        self._room = self._burst
        self._at = time.monotonic()
        self._left_out = 0
        self._mind = threading.Lock()

    @property
    def left_out(self) -> int:
        """Records that are in no note."""
        return int(self._left.value)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "telem" or record.name.startswith("telem."):
            return
        try:
            telemetry = self._given if self._given is not None else _default.current()
            if telemetry.level == 0:
                return
            self._records.tagged(level=record.levelname.lower()).inc()
            before = self._admit()
            if before is None:
                return
            if not telemetry.sender.put_errand(self._note(record, before, telemetry)):
                self._leave_out(before + 1)
        except Exception:  # noqa: BLE001: as every handler does
            self.handleError(record)

    def _admit(self) -> Optional[int]:
        """How many were left out before this record; ``None`` where it is left out too."""
        with self._mind:
            now = time.monotonic()
            self._room = min(self._burst, self._room + (now - self._at) * self._a_second)
            self._at = now
            if self._room < 1:
                self._left_out += 1
                self._left.inc()
                return None
            self._room -= 1
            before, self._left_out = self._left_out, 0
            return before

    def _leave_out(self, count: int) -> None:
        with self._mind:
            self._left_out += count
            self._left.inc()

    def _note(self, record: logging.LogRecord, left_out: int, telemetry: "Telemetry") -> Errand:
        text = record.getMessage()
        details = []
        if len(text) > TEXT_MAX:
            details.append(text)
        if record.exc_info:
            details.append((self.formatter or logging.Formatter()).formatException(record.exc_info))
        if left_out:
            details.append(f"({left_out} earlier records are in no note)")
        fields: Dict[str, Any] = {"level": record.levelname, "logger": record.name, "at": f"{record.filename}:{record.lineno}"}
        # Whose it is, where many processes have one log.
        fields.update(telemetry.own_tags)
        if left_out:
            fields["left_out"] = left_out
        body = {
            "startTime": telemetry.sender.note_millis(int(record.created * 1000)),
            "description": text[:TEXT_MAX] or record.levelname,
            "notes": "\n".join(details)[:DETAILS_MAX],
            "custom": {key: str(value)[:TEXT_MAX] for key, value in fields.items()},
        }
        return Errand("note", "/api/annotation", json.dumps(body).encode("utf-8", "replace"))
