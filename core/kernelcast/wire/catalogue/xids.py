"""XIDs, the error numbers of NVIDIA's driver, as a table with the first action after each.

Alert rules (`grafana/rules/gpu_errors.py`), the panel of errors and the rules for causes read it.

A number that is not in it has no known action. No single number asks for a replacement of the GPU: a failed row
remapping asks for it, or an error that returns after the reset. 109 (context switch timeout) is left out, because
sources differ: NVSentinel resets the GPU, the device plugin goes on using it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

SOURCES: Final = (
    "actions of NVIDIA/NVSentinel (gpu-health-monitor/xiderrorsmapping.csv); descriptions in NVIDIA, Xid errors, "
    "<https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html>"
)
_SENTINEL: Final = "NVIDIA/NVSentinel, gpu-health-monitor/xiderrorsmapping.csv, recommended action"
_PLUGIN: Final = "NVIDIA/k8s-device-plugin, internal/rm/health.go: the GPU stays schedulable"


class Action(StrEnum):
    """First action after an XID, from the smallest to the largest."""

    WATCH = "watch"
    RESTART_PROGRAM = "restart the program"
    RESET = "reset the GPU"
    REBOOT = "reboot the node"


class XidSubject(StrEnum):
    """Part of the system that an XID is about."""

    PROGRAM = "program"
    MEMORY = "memory"
    REMAPPING = "row remapping"
    NVLINK = "NVLink"
    GPU = "GPU"


@dataclass(frozen=True, slots=True)
class Xid:
    """One error number.

    Attributes:
        action: First action.
        part: Part that it is about.
        meaning: Short description.
        source: Origin of the action.
    """

    action: Action
    part: XidSubject
    meaning: str
    source: str = _SENTINEL


def _program(meaning: str, source: str = _SENTINEL) -> Xid:
    return Xid(Action.RESTART_PROGRAM, XidSubject.PROGRAM, meaning, source)


def _reset(part: XidSubject, meaning: str, source: str = _SENTINEL) -> Xid:
    return Xid(Action.RESET, part, meaning, source)


def _nvlink(meaning: str) -> Xid:
    return _reset(XidSubject.NVLINK, meaning, f"{_SENTINEL} WORKFLOW_NVLINK5_ERR, which we read as a reset")


XIDS: Final[Mapping[int, Xid]] = MappingProxyType(
    {
        13: _program("graphics engine exception"),
        31: _program("memory page fault"),
        43: _program("reset channel verification error", _PLUGIN),
        45: _program("preemptive clean-up after another error", _PLUGIN),
        46: _reset(XidSubject.GPU, "the GPU stopped processing"),
        48: _reset(XidSubject.MEMORY, "double-bit error", f"{_SENTINEL} WORKFLOW_XID_48, which we read as a reset"),
        62: _reset(XidSubject.GPU, "the power management unit halted"),
        63: Xid(Action.WATCH, XidSubject.REMAPPING, "a row was remapped; it takes effect with the next reset"),
        64: _reset(XidSubject.REMAPPING, "a row remapping could not be recorded"),
        68: _program("video decoder error"),
        69: _program("graphics class error"),
        74: _reset(XidSubject.NVLINK, "NVLink error", f"{_SENTINEL} WORKFLOW_NVLINK_ERR, which we read as a reset"),
        79: Xid(Action.REBOOT, XidSubject.GPU, "the GPU fell off the bus"),
        92: Xid(Action.WATCH, XidSubject.MEMORY, "many corrected single-bit errors"),
        94: Xid(Action.RESTART_PROGRAM, XidSubject.MEMORY, "contained memory error"),
        95: _reset(XidSubject.MEMORY, "uncontained memory error"),
        110: _reset(XidSubject.GPU, "security fault"),
        119: _reset(XidSubject.GPU, "the GPU's firmware (GSP) does not answer"),
        120: _reset(XidSubject.GPU, "error of the GPU's firmware (GSP)"),
        136: _reset(XidSubject.NVLINK, "link training failed"),
        140: _reset(XidSubject.MEMORY, "unrecoverable memory error"),
        143: _reset(XidSubject.GPU, "the GPU could not be initialised"),
        144: _nvlink("NVLink 5, SAW"),
        145: _nvlink("NVLink 5, RLW"),
        146: _nvlink("NVLink 5, TLW"),
        147: _nvlink("NVLink 5, TREX"),
        148: _nvlink("NVLink 5, NVLPW control"),
        149: _nvlink("NVLink 5, NETIR"),
        150: _nvlink("NVLink 5, MSE"),
        155: _reset(XidSubject.NVLINK, "NVLink error defined by software"),
        156: _reset(XidSubject.GPU, "a resource of the GPU was retired"),
        158: _reset(XidSubject.GPU, "fatal timeout"),
        160: Xid(Action.REBOOT, XidSubject.MEMORY, "a memory channel was retired"),
    }
)


def is_urgent(xid: Xid) -> bool:
    """Whether the GPU is unusable until somebody acts: a page, an alert of the highest severity."""
    return xid.action in {Action.RESET, Action.REBOOT}


def numbers(*parts: XidSubject, urgent: bool | None = None) -> frozenset[int]:
    """XIDs about any of the parts, all parts if none is named.

    Args:
        parts: Parts of the system.
        urgent: Only those that are urgent or, if False, only those that are not; None for both.
    """
    return frozenset(
        number
        for number, xid in XIDS.items()
        if (not parts or xid.part in parts) and (urgent is None or is_urgent(xid) == urgent)
    )
