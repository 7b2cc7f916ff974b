"""Faults that a GPU, its links or its driver report: XIDs, memory errors, links, a driver that hangs, a wrong clock."""

from collections.abc import Mapping
from typing import Final

from kernelcast.exporter.simulate.kinds.kind import ALL, FaultKind, FaultParameter

XID: Final = "xid"
XID_79: Final = "xid-79"
XID_94: Final = "xid-94"
ECC_BURST: Final = "ecc-burst"
ECC_UNCORRECTED: Final = "ecc-uncorrected"
NVLINK_DOWN: Final = "nvlink-down"
PCIE_REPLAYS: Final = "pcie-replays"
NVML_HANG: Final = "nvml-hang"
CLOCK_SKEW: Final = "clock-skew"

_PAUSE: Final = FaultParameter(30.0, 0.0, 86_400.0, "time until the program runs again")

HARDWARE_FAULTS: Final[Mapping[str, FaultKind]] = {
    XID: FaultKind(
        "the driver reports one XID, and nothing else changes",
        parameters={"code": FaultParameter(31.0, 1.0, 999.0, "the XID")},
    ),
    XID_79: FaultKind(
        "the GPU falls off the bus (XID 79): it does not answer, and its node's program ends and goes on without it",
        parameters={"pause": _PAUSE},
    ),
    XID_94: FaultKind(
        "a contained memory error (XID 94): the program on the GPU ends and starts again", parameters={"pause": _PAUSE}
    ),
    ECC_BURST: FaultKind(
        "a burst of corrected memory errors (XID 92)",
        parameters={"rate": FaultParameter(600.0, 0.0, 1e6, "single-bit errors a minute")},
    ),
    ECC_UNCORRECTED: FaultKind(
        "an uncorrectable memory error (XID 48): a row is remapped (XID 63), and the program ends and starts again",
        parameters={"pause": _PAUSE},
    ),
    NVLINK_DOWN: FaultKind(
        "NVLinks fail (XID 74), and collectives take longer over the others",
        parameters={"links": FaultParameter(2.0, 1.0, 18.0, "links of 18")},
    ),
    PCIE_REPLAYS: FaultKind(
        "the PCIe link sends packets again", parameters={"rate": FaultParameter(60.0, 0.001, 1e6, "retries a minute")}
    ),
    NVML_HANG: FaultKind("NVML hangs: the node has no device metrics, its exporter and its programs go on", gpu=ALL),
    CLOCK_SKEW: FaultKind(
        "the node's clock is ahead: its device samples are from the future",
        gpu=ALL,
        parameters={"ahead": FaultParameter(120.0, 0.001, 86_400.0, "how far; 90s, 5m")},
    ),
}

ENDS_PROGRAMS: Final = frozenset({XID_79, XID_94, ECC_UNCORRECTED})
"""Kinds after which programs end."""
XIDS: Final[Mapping[str, tuple[int, ...]]] = {
    XID_79: (79,),
    XID_94: (94,),
    ECC_BURST: (92,),
    ECC_UNCORRECTED: (48, 63),
    NVLINK_DOWN: (74,),
}
"""XIDs that the driver reports at the beginning of a fault; `wire.catalogue.xids` has their meanings."""
