"""Chooses the processes of a launch that write to the terminal: the first of each node, and the first of the job."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kernelcast.probe.marks.job import LOCAL_RANK
from kernelcast.probe.switch import OFF

QUIET: Final = "KERNELCAST_QUIET"


class LaunchRole(NamedTuple):
    """What a process of a launch writes.

    Attributes:
        is_first_of_node: Whether it writes lines.
        is_first_of_job: Whether it writes the summary.
        is_quiet: Whether its user or its kind forbids both; a report file is written all the same.
    """

    is_first_of_node: bool
    is_first_of_job: bool
    is_quiet: bool


def launch_role(environ: Mapping[str, str], modules: Mapping[str, Any], rank: str) -> LaunchRole:
    """Return the role of a process.

    Ranks come from the launcher's environment, else from `torch.distributed`. A child of `multiprocessing` without a
    rank is the first only where it is its parent's first child. A run of pytest is quiet.

    Args:
        environ: Its environment.
        modules: Its imported modules.
        rank: Its rank as the probe reports it; empty where that is not known.

    >>> launch_role({"LOCAL_RANK": "0"}, {}, "8")
    LaunchRole(is_first_of_node=True, is_first_of_job=False, is_quiet=False)
    """
    rank = rank or _distributed_rank(modules.get("torch.distributed")) or _number_of_child(modules)
    local = next((environ[name] for name in LOCAL_RANK if environ.get(name)), rank)
    is_quiet = environ.get(QUIET, "").lower() not in OFF or "pytest" in modules
    return LaunchRole(local in {"", "0"}, rank in {"", "0"}, is_quiet)


def _distributed_rank(distributed: Any) -> str:
    try:
        return str(distributed.get_rank()) if distributed.is_initialized() else ""
    except Exception:  # noqa: BLE001  not imported to its end, or built without collectives
        return ""


def _number_of_child(modules: Mapping[str, Any]) -> str:
    """Return the number of a child of `multiprocessing` from 0; empty for a process that is none."""
    try:
        processes = modules["multiprocessing.process"]
        child = processes.parent_process() is not None and processes.current_process()
        return str(max(child._identity) - 1) if child else ""  # noqa: SLF001
    except Exception:  # noqa: BLE001  not imported, or a process of another kind
        return ""
