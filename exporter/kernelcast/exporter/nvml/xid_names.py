"""Names of XIDs for the label `err_msg`, in NVIDIA's words; other numbers have the meaning of `wire.catalogue.xids`.

Source: NVIDIA, "XID Errors", docs.nvidia.com/deploy/xid-errors; "No Error" and "Unknown Error" as dcgm-exporter has
them.
"""

from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue.xids import XIDS

NO_ERROR: Final = "No Error"
UNKNOWN: Final = "Unknown Error"
NAMES: Final = MappingProxyType(
    {
        0: NO_ERROR,
        8: "GPU stopped processing",
        13: "Graphics Engine Exception",
        31: "GPU memory page fault",
        32: "Invalid or corrupted push buffer stream",
        38: "Driver firmware error",
        43: "GPU stopped processing",
        45: "Preemptive cleanup, due to previous errors",
        48: "Double Bit ECC Error",
        61: "Internal micro-controller breakpoint/warning",
        62: "Internal micro-controller halt",
        63: "ECC page retirement or row remapping recording event",
        64: "ECC page retirement or row remapper recording failure",
        68: "NVDEC0 Exception",
        69: "Graphics Engine class error",
        74: "NVLINK Error",
        79: "GPU has fallen off the bus",
        92: "High single-bit ECC error rate",
        94: "Contained ECC error",
        95: "Uncontained ECC error",
        109: "Context Switch Timeout Error",
        119: "GSP RPC Timeout",
        120: "GSP Error",
        121: "C2C Link Error",
        140: "Unrecovered ECC Error",
        143: "GPU Initialization Error",
        154: "GPU Recovery Action Changed",
    }
)


def xid_name(xid: int) -> str:
    """Name of an XID."""
    if xid in NAMES or xid not in XIDS:
        return NAMES.get(xid, UNKNOWN)
    meaning = XIDS[xid].meaning
    return meaning[0].upper() + meaning[1:]
