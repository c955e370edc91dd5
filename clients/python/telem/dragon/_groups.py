"""Dragon's collectors and detectors: a value of one's own for each node or GPU, and a standing question with an action.

Without Dragon's runtime they are threads of the program. Where a launcher started several processes on a node, the first
of them collects, and the first of the whole job detects: each process may create and start the same objects.
"""

from __future__ import annotations

import glob
import logging
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .. import _process
from .._telemetry import Telemetry as _Client
from . import _runtime
from ._analysis import AnalysisClient
from ._telemetry import DRAGON_INFRASTRUCTURE_TELEMETRY_STARTUP_TIMEOUT, Telemetry

LOCAL_RANK_NAMES = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PALS_LOCAL_RANKID",
    "FLUX_TASK_LOCAL_ID",
    "JSM_NAMESPACE_LOCAL_RANK",
    "SLURM_LOCALID",
)
"""Variables in which launchers count the processes of a node, the innermost first, as the ranks in ``_process``."""
LOCAL_SIZE_NAMES = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PALS_LOCAL_SIZE")
GPU_MASK_NAMES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that say which GPUs a process may use."""
STOP_S = 30.0
"""How long ``stop()`` waits for a collector or a question that is under way, in seconds."""
CONNECT_S = 60.0
"""How long a detector waits for the service, in seconds; then it says so and tries again."""

log = logging.getLogger("telem")
_of_thread = threading.local()


class Placement(NamedTuple):
    """Where a collector runs without Dragon's runtime."""

    host: str
    gpu: Optional[str]
    """As the mask of this process names it; ``None`` for one of the whole node."""
    number: Optional[int]
    """Among the GPUs that this process sees, as CUDA counts them."""


def current_gpu() -> Optional[int]:
    """Of a collector for each GPU: which one its thread is for, counted as CUDA does in this process; else ``None``."""
    index: Optional[int] = getattr(_of_thread, "gpu", None)
    return index


def _said(names: Tuple[str, ...], environment: Mapping[str, str]) -> Optional[int]:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)


def is_first_of_node(environment: Mapping[str, str]) -> bool:
    """Whether no other process that the launcher started here is before this one, as far as it says so."""
    return _said(LOCAL_RANK_NAMES, environment) in (None, 0)


def is_first_of_job(environment: Mapping[str, str]) -> bool:
    rank, _ = _process.rank(environment)
    return rank in (None, "0")


def own_gpus(environment: Mapping[str, str]) -> List[Tuple[str, int]]:
    """The GPUs that this process is to collect from, with their places among those that it sees.

    A process with one GPU has that; processes that see the same several divide them by their numbers on the node.
    """
    mask = next((environment[name] for name in GPU_MASK_NAMES if environment.get(name)), None)
    if mask is not None:
        seen = [part.strip() for part in mask.split(",") if part.strip() and part.strip() != "-1"]
    else:
        seen = [str(n) for n in range(len(glob.glob("/proc/driver/nvidia/gpus/*")) or _amd_gpus())]
    gpus = [(gpu, index) for index, gpu in enumerate(seen)]
    if len(gpus) == 1 and mask is not None:
        return gpus
    local, size = _said(LOCAL_RANK_NAMES, environment) or 0, _said(LOCAL_SIZE_NAMES, environment)
    if size is None:
        return gpus if local == 0 else []
    return [gpu for gpu in gpus if gpu[1] % size == local]


def _amd_gpus() -> int:
    """Nodes of the kernel's list that have SIMDs: the others are CPUs."""
    found = 0
    for path in glob.glob("/sys/class/kfd/kfd/topology/nodes/*/properties"):
        try:
            with open(path, encoding="ascii") as file:
                found += any(line.startswith("simd_count ") and line.split()[1] != "0" for line in file)
        except (OSError, ValueError, IndexError):
            continue
    return found


class AnalysisGroupBase(ABC):
    def __init__(self, metric_name: str = "user-cg", collection_rate: float = 3, **kwargs: Any) -> None:
        self.metric_name = metric_name
        self.collection_rate = collection_rate

    @abstractmethod
    def start(self) -> None:
        """Begins; what it stands on begins after it."""
        return

    @abstractmethod
    def stop(self) -> None:
        """Ends, within :data:`STOP_S`."""
        return


class _Collector:
    """What one collector does, wherever it runs."""

    def __init__(self, test: Callable[[Any], Any], test_args: Any, metric: str, per_gpu: bool, rate: float) -> None:
        self._test = test
        self._test_args = test_args
        self._metric = metric
        self._per_gpu = per_gpu
        self._rate = rate

    def in_runtime(self, end: Any) -> None:
        """In a process that Dragon's runtime has placed."""
        telemetry = _runtime.telemetry(DRAGON_INFRASTRUCTURE_TELEMETRY_STARTUP_TIMEOUT)
        gpu = _runtime.own_gpu() if self._per_gpu else None
        while not end.is_set():
            self._try(telemetry, gpu)
            end.wait(self._rate)

    def here(self, telemetry: _Client, place: Placement, end: threading.Event) -> None:
        """In a thread of the program."""
        _of_thread.gpu = place.number
        while not end.is_set():
            self._try(telemetry, place.gpu)
            end.wait(self._rate)

    def _try(self, telemetry: Any, gpu: Optional[str]) -> None:
        try:
            _use_gpu(current_gpu())
            value = self._test(self._test_args)
            if self._per_gpu:
                telemetry.add_data(ts_metric_name=self._metric, ts_data=value, tagk="gpu", tagv=str(gpu))
            else:
                telemetry.add_data(ts_metric_name=self._metric, ts_data=value)
        except Exception as error:  # noqa: BLE001: the next one may succeed, and the program goes on
            log.warning("telem: the collector of %r failed: %s: %s", self._metric, type(error).__name__, error)



def _use_gpu(index: Optional[int]) -> None:
    """PyTorch has a current GPU for each thread."""
    torch: Any = sys.modules.get("torch")
    if index is not None and torch is not None and torch.cuda.is_available():
        torch.cuda.set_device(index)


class CollectorGroup(AnalysisGroupBase):
    """Calls ``collector_test`` of the subclass on each node, or for each GPU, every ``collection_rate`` seconds, and adds
    what it returns to the metric ``metric_name``, with the tag ``gpu`` if ``per_gpu``.

    In Dragon's runtime it is a process on each node, as Dragon has it. Else it is a thread in the first process of each
    node that created one: under ``srun`` or ``mpirun`` on every node, in a plain program on its own.
    """

    def __init__(
        self,
        metric_name: str = "user-cg",
        per_gpu: bool = False,
        collection_rate: float = 3,
        collector_args: Any = None,
        **kwargs: Any,
    ) -> None:
        self.collector_fn = self.collector_test
        self.collector_args = collector_args
        self.per_gpu = per_gpu
        self._collector = _Collector(self.collector_fn, collector_args, metric_name, per_gpu, collection_rate)
        self._placed: Optional[_runtime.Collectors] = None
        self._end_event = threading.Event()
        self._threads: List[threading.Thread] = []
        super().__init__(metric_name=metric_name, collection_rate=collection_rate, **kwargs)

    def generate_policies(self) -> List[Any]:
        """Where collectors run: policies of Dragon in its runtime, else a :class:`Placement` for each thread."""
        if _runtime.is_running():
            return _runtime.policies(self.per_gpu)
        host = _runtime.own_host()
        if self.per_gpu:
            return [Placement(host, gpu, index) for gpu, index in own_gpus(os.environ)]
        return [Placement(host, None, None)] if is_first_of_node(os.environ) else []

    def start(self) -> None:
        places = self.generate_policies()
        if self.per_gpu and not places:
            log.warning("telem: %r collects nothing here: this process sees no GPU", self.metric_name)
        if _runtime.is_running():
            if places:
                self._placed = _runtime.Collectors(self._collector.in_runtime, places)
                self._placed.start()
        else:
            self._end_event = threading.Event()
            telemetry = Telemetry()
            self._threads = [
                threading.Thread(
                    target=self._collector.here, args=(telemetry, place, self._end_event), name="telem collector", daemon=True
                )
                for place in places
            ]
            for thread in self._threads:
                thread.start()
        super().start()

    def stop(self) -> None:
        """Waits up to 30 s for a ``collector_test`` that is under way."""
        self._end_event.set()
        if self._placed is not None:
            self._placed.stop(STOP_S)
            self._placed = None
        _join(self._threads, f"a collector of {self.metric_name!r}")
        self._threads = []
        super().stop()

    @staticmethod
    @abstractmethod
    def collector_test(collector_args: Any) -> float:
        raise NotImplementedError("This method should be implemented in the subclass.")


class Detector(AnalysisGroupBase):
    """Asks for ``metric_name`` every ``collection_rate`` seconds and gives the answer, which is that of
    :meth:`AnalysisClient.get_data` since the start, to ``analyze_data`` of the subclass. If that says to restart,
    ``trigger_restart`` is called: once for each finding, and again when the finding has changed or has been away.

    action
        Called with the list of nodes after ``trigger_restart``, in the thread of the detector. (telem's own.)
    """

    def __init__(
        self,
        metric_name: str = "user-cg",
        collection_rate: float = 3,
        sacred_nodes: Optional[List[str]] = None,
        restartable_ddicts: Optional[List[Any]] = None,
        tags: Optional[List[str]] = None,
        analysis_args: Any = None,
        *,
        action: Optional[Callable[[List[str]], Any]] = None,
        **kwargs: Any,
    ) -> None:
        self.sacred_nodes = sacred_nodes
        self.restartable_ddicts = restartable_ddicts
        self.tags = tags
        self.analysis_fn = self.analyze_data
        self.analysis_args = analysis_args
        self.action = action
        self._watcher_end_event = threading.Event()
        self._watcher: Optional[threading.Thread] = None
        super().__init__(metric_name=metric_name, collection_rate=collection_rate, **kwargs)

    @property
    def watcher_args(self) -> Tuple[Any, ...]:
        return (
            self._watcher_end_event,
            self.metric_name,
            self.collection_rate,
            self.sacred_nodes,
            self.restartable_ddicts,
            self.tags,
            self.analysis_fn,
            self.analysis_args,
        )

    def start(self) -> None:
        """In the first process of a job that has several, and nowhere else."""
        if _runtime.is_running() or is_first_of_job(os.environ):
            self._watcher_end_event = threading.Event()
            self._watcher = threading.Thread(
                target=self.watcher, args=self.watcher_args, kwargs={"action": self.action}, name="telem detector", daemon=True
            )
            self._watcher.start()
        super().start()

    def stop(self) -> None:
        """Waits up to 30 s for a question or an action that is under way."""
        self._watcher_end_event.set()
        watcher, self._watcher = self._watcher, None
        # An action may stop its own detector.
        if watcher is not None and watcher is not threading.current_thread():
            _join([watcher], f"the detector of {self.metric_name!r}")
        super().stop()

    @classmethod
    def watcher(
        cls,
        end_event: Any,
        metric_name: str,
        collection_rate: float,
        sacred_nodes: Optional[List[str]],
        restartable_ddicts: Optional[List[Any]],
        tags: Optional[List[str]],
        analysis_fn: Callable[[List[Dict[str, Any]], Any], Tuple[bool, List[str]]],
        analysis_args: Any,
        action: Optional[Callable[[List[str]], Any]] = None,
    ) -> None:
        """Runs until ``end_event`` is set."""
        # What was measured before is not asked for.
        start_time = int(time.time())
        client = AnalysisClient()
        is_connected, acted = False, None
        while not end_event.wait(collection_rate):
            try:
                if not is_connected:
                    client.connect(timeout=CONNECT_S)
                    is_connected = True
                data = client.get_data(metric_name, tags=tags, start_time=start_time)
                restart, nodes = analysis_fn(data, analysis_args)
                nodes = [str(node) for node in nodes or []]
            except Exception as error:  # noqa: BLE001: the next answer may do
                log.warning("telem: unable to analyze %r: %s: %s", metric_name, type(error).__name__, error)
                continue
            if not restart:
                acted = None
                continue
            if end_event.is_set() or acted == set(nodes):
                continue
            acted = set(nodes)
            try:
                cls.trigger_restart(nodes, sacred_nodes, restartable_ddicts)
                if action is not None:
                    action(_removing(nodes, sacred_nodes))
            except Exception as error:  # noqa: BLE001: as above
                log.warning("telem: the action of the detector of %r failed: %s: %s", metric_name, type(error).__name__, error)

    @staticmethod
    def trigger_restart(
        nodes_to_remove: List[str], sacred_nodes: Optional[List[str]], restartable_ddicts: Optional[List[Any]]
    ) -> None:
        """What happens when ``analyze_data`` asks for a restart; override it for an action of your own.

        It leaves a note on the run that names the nodes which are not sacred. In Dragon's runtime it then destroys the
        dictionaries with ``allow_restart=True`` and restarts without these nodes. Elsewhere it says that nothing was
        restarted, and destroys nothing. Where all nodes are sacred, nothing is restarted either.
        """
        removing = _removing(nodes_to_remove, sacred_nodes)
        can_restart = _runtime.is_running() and bool(removing)
        what = f"restart without {', '.join(removing)}" if removing else "restart, but all nodes that it names are sacred"
        Telemetry(level=1).note(f"detector: {what}", details="done" if can_restart else "nothing was restarted")
        if not can_restart:
            why = "Dragon's runtime is not running here" if removing else "there is no node to remove"
            log.warning("telem: a detector asks for a %s; nothing was restarted: %s", what, why)
            return
        for ddict in restartable_ddicts or []:
            ddict.destroy(allow_restart=True)
        AnalysisClient().reboot(exclude_hostnames=removing)

    @staticmethod
    @abstractmethod
    def analyze_data(data: List[Dict[str, Any]], analysis_args: Any) -> Tuple[bool, List[str]]:
        raise NotImplementedError("This method should be implemented in the subclass.")


def _removing(nodes: List[str], sacred: Optional[List[str]]) -> List[str]:
    return sorted(set(nodes) - set(sacred or []))


class CollectorDetectorGroup(Detector, CollectorGroup):
    """Both: collects a value of one's own, and watches it."""

    def __init__(
        self,
        metric_name: str = "user-cg",
        per_gpu: bool = False,
        collection_rate: float = 3,
        sacred_nodes: Optional[List[str]] = None,
        restartable_ddicts: Optional[List[Any]] = None,
        tags: Optional[List[str]] = None,
        collector_args: Any = None,
        analysis_args: Any = None,
        *,
        action: Optional[Callable[[List[str]], Any]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            metric_name=metric_name,
            per_gpu=per_gpu,
            collection_rate=collection_rate,
            sacred_nodes=sacred_nodes,
            restartable_ddicts=restartable_ddicts,
            tags=tags,
            collector_args=collector_args,
            analysis_args=analysis_args,
            action=action,
            **kwargs,
        )


def _join(threads: List[threading.Thread], what: str) -> None:
    until = time.monotonic() + STOP_S
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
        if thread.is_alive():
            log.warning("telem: %s is still busy after %g s and is left behind", what, STOP_S)


__all__: List[str] = ["AnalysisGroupBase", "CollectorDetectorGroup", "CollectorGroup", "Detector", "Placement", "current_gpu"]
