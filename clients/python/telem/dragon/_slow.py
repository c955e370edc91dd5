"""Dragon's detector of slow GPUs."""

from __future__ import annotations

import math
import statistics
import time
from importlib import import_module
from typing import Any, Dict, List, Optional, Tuple

from .._sql import TelemetryError
from . import _runtime
from ._groups import CollectorDetectorGroup, current_gpu

SIDE, RANK = 20, 10
"""Of the matrices that are contracted."""
WINDOW = 4
"""How many of the latest points of each GPU are compared."""
SCORE_MAX = 2.5
"""By how many standard deviations the mean of a GPU may be slower than that of all."""
SPREAD_MIN = 1e-9
"""A standard deviation below which all GPUs count as equal, in seconds."""


class SlowGPUDetector(CollectorDetectorGroup):
    """Times a small contraction on each GPU (metric ``slow-gpu``), and asks for a restart without the nodes of GPUs that
    are slower than the rest. The first node of the job is sacred. Collecting needs PyTorch; judging needs nothing."""

    def __init__(
        self,
        collection_rate: float = 3,
        restartable_ddicts: Optional[List[Any]] = None,
        analysis_args: Any = None,
        collector_args: Any = None,
        **kwargs: Any,
    ) -> None:
        self._sacred_hostname: Optional[str] = None
        super().__init__(
            metric_name="slow-gpu",
            per_gpu=True,
            collection_rate=collection_rate,
            tags=["host", "gpu"],
            restartable_ddicts=restartable_ddicts,
            sacred_nodes=[self.sacred_hostname],
            collector_args=collector_args,
            analysis_args=analysis_args,
            **kwargs,
        )

    @property
    def sacred_hostname(self) -> str:
        """Dragon's primary node; without its runtime, the node of the process that detects."""
        if self._sacred_hostname is None:
            self._sacred_hostname = _runtime.primary_host() if _runtime.is_running() else _runtime.own_host()
        return self._sacred_hostname

    @staticmethod
    def collector_test(collector_args: Any) -> float:
        """Seconds that a contraction of low-rank matrices takes, element by element: many small kernels.

        Raises :class:`telem.TelemetryError` without PyTorch.
        """
        try:
            torch: Any = import_module("torch")
        except ImportError as error:
            why = "SlowGPUDetector measures with PyTorch, which is not installed here: pip install torch"
            raise TelemetryError(why) from error
        has_gpu = torch.cuda.is_available()
        # The GPU of this collector; in Dragon's runtime the only one that its process sees.
        device = torch.device(f"cuda:{current_gpu() or 0}" if has_gpu else "cpu")
        first, second, third, fourth = (torch.rand(SIDE, RANK, device=device) for _ in range(4))
        contracted = torch.zeros(SIDE, SIDE, device=device)
        if has_gpu:
            torch.cuda.synchronize(device)
        began = time.perf_counter()
        for row in range(SIDE):
            for column in range(SIDE):
                for p in range(RANK):
                    for q in range(RANK):
                        inner = torch.sum(second[:, p] * third[:, q])
                        contracted[row, column] += inner * first[row, p] * fourth[column, q]
        if has_gpu:
            # Kernels that are only queued have taken no time yet.
            torch.cuda.synchronize(device)
        return time.perf_counter() - began

    @staticmethod
    def analyze_data(gpu_data: List[Dict[str, Any]], analysis_args: Any) -> Tuple[bool, List[str]]:
        """Whether to restart, and without which nodes. Nothing is decided before each GPU has four points."""
        every: List[float] = []
        means: List[Tuple[str, float]] = []
        for line in gpu_data:
            latest = sorted((int(second), value) for second, value in line["dps"].items() if math.isfinite(value))[-WINDOW:]
            if len(latest) < WINDOW:
                return False, []
            if "gpu" not in line["tags"] or "host" not in line["tags"]:
                raise KeyError(f"Unable to find host and gpu in tags: {line['tags']}")
            values = [value for _, value in latest]
            every += values
            means.append((line["tags"]["host"], statistics.fmean(values)))
        if len(every) < 2:
            return False, []
        spread = statistics.stdev(every)
        if spread < SPREAD_MIN:
            return False, []
        middle = statistics.fmean(every)
        slow = [host for host, mean in means if (mean - middle) / spread > SCORE_MAX]
        return bool(slow), list(dict.fromkeys(slow))
