"""Puts telem's classes in the place of Dragon's when a program imports them; ``hook/sitecustomize.py`` asks it.

Where ``dragonhpc`` is installed, its modules are imported as they are, and then have what needs Dragon's own servers
replaced: the analysis client, the groups and detectors, the widget and the offline telemetry. ``Telemetry`` stays
Dragon's, which sends to the port that telem keeps, and so does ``dragon.utils.TimeKeeper``, which sends through it. Where
the package is not there, ``dragon.telemetry`` and ``dragon.utils`` are made of :mod:`telem.dragon` alone; a plain
``import dragon`` fails then as it would without telem.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any, List, Optional, Sequence

from .. import dragon as ours

REPLACED = ("AnalysisClient", "Detector", "CollectorGroup", "CollectorDetectorGroup", "SlowGPUDetector")
OWN = {
    "dragon.telemetry": (*REPLACED, "Telemetry", "DRAGON_INFRASTRUCTURE_TELEMETRY_STARTUP_TIMEOUT"),
    "dragon.telemetry.analysis": REPLACED,
    "dragon.telemetry.offline_telemetry": ("OfflineTelemetry", "start_offline_telemetry"),
    "dragon.telemetry.telemetry": ("Telemetry", "DRAGON_INFRASTRUCTURE_TELEMETRY_STARTUP_TIMEOUT"),
    "dragon.telemetry.widget": ("DragonTelemetryWidget",),
    "dragon.utils": ("TimeKeeper",),
}
"""What each module has of ours where Dragon's is not there."""
MARK = "__telem__"
"""An attribute of modules that are ours."""

Spec = Optional[importlib.machinery.ModuleSpec]


def spec_of(name: str, path: Optional[Sequence[str]], target: Any, hook: Any) -> Spec:
    """How to import ``name``; ``None`` as if we were not there. ``hook`` is the finder that asks."""
    if name == "dragon":
        return None if _real(name, path, target, hook) is not None or not _is_for_telemetry() else _own_spec(name)
    parent = sys.modules.get(name.rpartition(".")[0])
    if getattr(parent, MARK, False):
        return _own_spec(name)
    real = _real(name, path, target, hook)
    if real is None or real.loader is None or name in ("dragon.utils", "dragon.telemetry.telemetry"):
        return None
    if name in ("dragon.telemetry.widget", "dragon.telemetry.offline_telemetry"):
        # Of Dragon's own nothing is needed, nor what it imports.
        return _own_spec(name)
    real.loader = _Replacing(real.loader)
    return real


def _real(name: str, path: Optional[Sequence[str]], target: Any, hook: Any) -> Spec:
    for finder in list(sys.meta_path):
        find = None if finder is hook else getattr(finder, "find_spec", None)
        found: Spec = find(name, path, target) if find is not None else None
        if found is not None:
            return found
    return None


def _is_for_telemetry() -> bool:
    """Whether ``dragon`` is imported because a module in it that we have is. Else who asks whether Dragon is there by
    importing it would be told so wrongly. The import system says it nowhere but in its own frames."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>" and frame.f_locals.get("name") in OWN:
            return True
        frame = frame.f_back
    return False


def _own_spec(name: str) -> Spec:
    is_package = name in ("dragon", "dragon.telemetry")
    return importlib.util.spec_from_loader(name, _Own(), origin=f"telem.dragon as {name}", is_package=is_package)


class _Own(importlib.abc.Loader):
    """Loads a module that is made of ours alone."""

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        fill(module)


class _Replacing(importlib.abc.Loader):
    """Loads a module of Dragon, and then replaces what is ours to answer."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def create_module(self, spec: Any) -> Any:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        try:
            self._real.exec_module(module)
        except ImportError:
            # Such as without requests, which is part of dragonhpc[telemetry] only.
            fill(module)
            return
        for name in REPLACED:
            setattr(module, name, getattr(ours, name))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def fill(module: ModuleType) -> None:
    """Makes ``module`` one of ours."""
    setattr(module, MARK, True)
    module.__doc__ = f"{module.__name__}, answered by telem: see telem.dragon."
    names: List[str] = list(OWN.get(module.__name__, ()))
    for name in names:
        setattr(module, name, getattr(ours, name))
    if module.__name__ == "dragon.telemetry.offline_telemetry":
        from ._offline import main

        setattr(module, "main", main)
    setattr(module, "__all__", names)
