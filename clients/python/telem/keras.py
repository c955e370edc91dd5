# mypy: disable-error-code="attr-defined, assignment, import-untyped, import-not-found, misc, unused-ignore"
"""Keras logs to telem: what each epoch, and each so many batches, say of themselves.

    from telem.keras import TelemCallback

    model.fit(x, y, epochs=5, callbacks=[TelemCallback()])

Needs the package ``keras`` (3).
"""

from __future__ import annotations

import time
from typing import Any, Mapping, Optional

try:
    import keras
except ImportError as error:
    raise ImportError("telem.keras needs the package keras, which is not installed here") from error

from . import _default
from ._telemetry import Telemetry

__all__ = ["TelemCallback"]


class TelemCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Logs the metrics of each epoch under their own names (``loss``, ``val_loss``), with the number of the epoch as step,
    and ``epoch_seconds``; of each ``every``-th batch as ``batch/loss`` and so on, with the number of the batch since the
    beginning as step.

    every
        ``None``: no batches.
    tags
        Of all these.
    telemetry
        Whose they are; by default what :func:`telem.init` made, or will make.
    """

    def __init__(
        self,
        every: Optional[int] = None,
        *,
        tags: Optional[Mapping[str, object]] = None,
        telemetry: Optional[Telemetry] = None,
    ) -> None:
        super().__init__()
        self._every = every
        self._tags = tags
        self._given = telemetry
        self._batches = 0
        self._began = 0.0

    def _telemetry(self) -> Telemetry:
        return self._given if self._given is not None else _default.current()

    def on_train_begin(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        settings = {key: value for key, value in (self.params or {}).items() if value is not None and key != "verbose"}
        optimizer = getattr(self.model, "optimizer", None)
        if optimizer is not None:
            settings["optimizer"] = type(optimizer).__name__
        if self._telemetry().level > 0:
            self._telemetry().config({f"keras.{key}": value for key, value in settings.items()})

    def on_epoch_begin(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._batches += 1
        if self._every and self._batches % self._every == 0 and logs:
            self._telemetry().log({"batch": dict(logs)}, step=self._batches, tags=self._tags)

    def on_epoch_end(self, epoch: int, logs: Optional[Mapping[str, Any]] = None) -> None:
        found = {**(logs or {}), "epoch_seconds": time.perf_counter() - self._began}
        self._telemetry().log(found, step=epoch, tags=self._tags)

    def on_train_end(self, logs: Optional[Mapping[str, Any]] = None) -> None:
        self._telemetry().flush()
