# mypy: disable-error-code="attr-defined, assignment, import-untyped, import-not-found, misc, unused-ignore"
"""The Trainer of Hugging Face's ``transformers`` logs to telem.

    from telem.huggingface import TelemCallback

    Trainer(model, arguments, callbacks=[TelemCallback()], ...)

Needs the package ``transformers``.
"""

from __future__ import annotations

import time
from typing import Any, Mapping, Optional

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError("telem.huggingface needs the package transformers, which is not installed here") from error

from . import _default
from ._telemetry import Telemetry

__all__ = ["TelemCallback"]


class TelemCallback(TrainerCallback):  # type: ignore[misc]
    """Logs what the Trainer logs (``loss``, ``grad_norm``, ``learning_rate``, ``eval_loss``, ...) with its global step, of
    the first process, as its other callbacks do; and of every process the seconds of each step, ``step_seconds``.

    The arguments of the training become settings of the run.
    """

    def __init__(
        self,
        *,
        tags: Optional[Mapping[str, object]] = None,
        telemetry: Optional[Telemetry] = None,
    ) -> None:
        self._tags = tags
        self._given = telemetry
        self._began: Optional[float] = None

    def _telemetry(self) -> Telemetry:
        return self._given if self._given is not None else _default.current()

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        telemetry = self._telemetry()
        if state.is_world_process_zero and telemetry.level > 0:
            said = {key: value for key, value in args.to_sanitized_dict().items() if value is not None and value != ""}
            telemetry.config({f"trainer.{key}": value for key, value in said.items()})

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self._began is not None:
            self._telemetry().log({"step_seconds": time.perf_counter() - self._began}, step=state.global_step, tags=self._tags)
            self._began = None

    def on_log(self, args: Any, state: Any, control: Any, logs: Optional[Mapping[str, Any]] = None, **more: Any) -> None:
        if state.is_world_process_zero and logs:
            numbers = {key: value for key, value in logs.items() if isinstance(value, (int, float))}
            self._telemetry().log(numbers, step=state.global_step, tags=self._tags)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._telemetry().flush()
