# mypy: disable-error-code="attr-defined, assignment, import-untyped, import-not-found, misc, unused-ignore"
"""PyTorch Lightning logs to telem.

    from telem.lightning import TelemLogger

    Trainer(logger=TelemLogger(), ...)

Needs the package ``lightning`` or ``pytorch_lightning``.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Dict, Mapping, Optional, Union

try:
    from lightning.pytorch.loggers.logger import Logger
    from lightning.pytorch.utilities.rank_zero import rank_zero_only
except ImportError:
    try:
        from pytorch_lightning.loggers.logger import Logger
        from pytorch_lightning.utilities.rank_zero import rank_zero_only
    except ImportError as error:
        why = "telem.lightning needs the package lightning or pytorch_lightning; neither is installed here"
        raise ImportError(why) from error

from . import _default
from ._telemetry import Telemetry

__all__ = ["TelemLogger"]


class TelemLogger(Logger):  # type: ignore[misc]
    """A logger of Lightning: ``self.log("train_loss", loss)`` becomes the metric ``train_loss`` with the step. Hyperparameters
    become settings of the run.

    name
        What the run is called.
    every_rank
        Logs of all processes, which the tag ``rank`` tells apart; by default of the first alone, as Lightning's own.
    prefix
        Of all metrics' names, with a ``/`` behind it.
    """

    def __init__(
        self,
        name: Optional[str] = None,
        *,
        every_rank: bool = False,
        prefix: str = "",
        tags: Optional[Mapping[str, object]] = None,
        telemetry: Optional[Telemetry] = None,
    ) -> None:
        super().__init__()
        self._name = name
        self._every_rank = every_rank
        self._head = f"{prefix}/" if prefix else ""
        self._tags = tags
        self._given = telemetry
        if name is not None and rank_zero_only.rank == 0 and self.experiment.level > 0:
            self.experiment.config(name=name)

    @property
    def experiment(self) -> Telemetry:
        """The telemetry that is logged to."""
        return self._given if self._given is not None else _default.current()

    @property
    def name(self) -> Optional[str]:
        return self._name or "telem"

    @property
    def version(self) -> Optional[Union[int, str]]:
        # A run has no other number than its job.
        return None

    def log_hyperparams(self, params: Union[Dict[str, Any], Namespace, None] = None, *_: Any, **more: Any) -> None:
        if rank_zero_only.rank != 0 or self.experiment.level == 0:
            return
        given = vars(params) if isinstance(params, Namespace) else dict(params or {})
        self.experiment.config({**given, **more})

    def log_metrics(self, metrics: Mapping[str, Any], step: Optional[int] = None) -> None:
        if self._every_rank or rank_zero_only.rank == 0:
            self.experiment.log({f"{self._head}{key}": value for key, value in metrics.items()}, step=step, tags=self._tags)

    def save(self) -> None:
        self.experiment.flush()

    def finalize(self, status: str) -> None:
        self.experiment.flush()
