"""Dragon's own runtime, where this process was started by it; nothing of it is imported elsewhere."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, List, Optional

from .. import _service

STARTED_BY_IT = "DRAGON_GS_RET_QD"
"""A variable that the runtime sets in each process that it starts."""


def is_running() -> bool:
    return bool(os.environ.get(STARTED_BY_IT))


def reboot(huids: "Optional[List[int]]", hostnames: "Optional[List[str]]") -> None:
    """Restarts Dragon's runtime without some of its nodes, named as telem names them or as Dragon does.

    Raises ``RuntimeError`` where there is no runtime to restart.
    """
    if not is_running():
        why = (
            "Dragon's runtime is not running here, so there is nothing to reboot: telem records a job and does not place "
            "its processes. Start the program with `dragon --resilient`, or stop it and let the scheduler start it again "
            "without these nodes"
        )
        raise RuntimeError(f"{why} (hostnames {hostnames}, h_uids {huids}).")
    named = None if hostnames is None else [_dragons_name(name) for name in hostnames]
    import_module("dragon.globalservices.process").runtime_reboot(huids=huids, hostnames=named)


def _dragons_name(host: str) -> str:
    """telem has short names in small letters; Dragon has what the node calls itself."""
    machine = import_module("dragon.native.machine")
    names = [machine.Node(uid).hostname for uid in machine.System().nodes]
    if host in names:
        return host
    return next((name for name in names if name.split(".")[0].lower() == host.split(".")[0].lower()), host)


def own_host() -> str:
    """This node, as telem calls it."""
    return _service.of_environment(None).node()


def primary_host() -> str:
    """The node that Dragon's runtime cannot do without."""
    name: str = import_module("dragon.native.machine").System().primary_node.hostname
    return name


def policies(per_gpu: bool) -> List[Any]:
    """Where Dragon places a collector on each node, or for each GPU."""
    system = import_module("dragon.native.machine").System()
    found: List[Any] = system.gpu_policies() if per_gpu else system.hostname_policies()
    return found


class Collectors:
    """Processes that the runtime has placed, and the event that ends them."""

    def __init__(self, collect: Any, policies: List[Any]) -> None:
        template = import_module("dragon.native.process").ProcessTemplate
        self._end = import_module("dragon.native.event").Event()
        self._group = import_module("dragon.native.process_group").ProcessGroup(restart=False, pmi=None)
        for policy in policies:
            self._group.add_process(nproc=1, template=template(target=collect, args=(self._end,), policy=policy))

    def start(self) -> None:
        self._group.init()
        self._group.start()

    def stop(self, timeout_s: float) -> None:
        self._end.set()
        try:
            self._group.join(timeout=timeout_s)
        except TimeoutError:
            self._group.terminate()
        self._group.close()


def own_gpu() -> Optional[str]:
    """The GPU that the runtime gave to this process."""
    variable = import_module("dragon.native.machine").current().gpu_env_str
    return os.environ.get(variable) if variable else None


def telemetry(timeout_s: float) -> Any:
    """Dragon's own class: its port is on every node where telem keeps one. Raises ``TimeoutError`` where it is not."""
    return import_module("dragon.telemetry.telemetry").Telemetry(timeout=timeout_s)
