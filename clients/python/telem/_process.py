"""The identity of this process as tags, so that no two processes of a job write the same series."""

from __future__ import annotations

import os
import sys
from typing import List, Mapping, Optional, Tuple, Union

RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables in which launchers set a process's rank, the innermost first: under ``srun torchrun`` SLURM_PROCID is that of
torchrun, which all of its workers share, and RANK is the worker's own."""

JOB_NAMES = ("TELEM_JOB", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID", "OAR_JOB_ID",
             "PJM_JOBID")
"""Variables that say which job a process was started for, where several share a service."""


JOB_BYTES_MAX = 256
"""Longest name of a job."""


def rank(environment: Mapping[str, str]) -> Tuple[Optional[str], bool]:
    """The rank of this process as its launcher set it, and whether no other process can have it.

    In a batch script Slurm says 0 to everything that is started there without ``srun``.
    """
    for name in RANK_NAMES:
        value = environment.get(name, "")
        if value.isdigit():
            in_batch_script = name == "SLURM_PROCID" and not environment.get("SLURM_STEP_ID")
            return value, not in_batch_script
    return None, False


def is_multiprocessing_child() -> bool:
    """Whether :mod:`multiprocessing` started this process: it inherits the rank of the one that did."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def job(environment: Mapping[str, str]) -> Optional[str]:
    """The job that a process was started for: telem's own word before the scheduler's; none that the service refuses."""
    named = next((environment[name] for name in JOB_NAMES if environment.get(name)), None)
    fits = named and len(named) <= JOB_BYTES_MAX and named.isascii() and named.isprintable()
    return named if fits else None


def choice(given: Union[bool, str, None], said: Optional[str]) -> str:
    """Which tags tell this process from others: ``"none"``, ``"both"`` or ``"needed"``."""
    if given is None:
        given = False if is_switched_off(said) else str(said or "").strip().lower()
    return "both" if given == "both" else "needed" if given or given == "" else "none"


def tags(environment: Mapping[str, str], is_forked: bool, chosen: str = "needed") -> List[Tuple[str, object]]:
    """``rank`` if a launcher set it; ``pid`` unless no other process has that rank, or if both are ``chosen``."""
    if chosen == "none":
        return []
    value, is_own = rank(environment)
    found: List[Tuple[str, object]] = [] if value is None else [("rank", value)]
    if chosen == "both" or not is_own or is_forked or is_multiprocessing_child():
        found.append(("pid", os.getpid()))
    return found


def is_switched_off(value: Optional[str]) -> bool:
    """Whether the value of an environment variable says no."""
    return value is not None and value.strip().lower() in ("0", "false", "no", "off")
