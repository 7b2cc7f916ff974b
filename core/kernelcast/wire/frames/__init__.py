"""Frames on the probe's Unix socket: their contents, their packed rows, and their bytes.

`messages` has the values, `rows` the totals of kernels, `codec` makes packets of them. The probe and the exporter's
socket server import the names from here.
"""

from kernelcast.wire.frames.codec import HEADER, MAGIC, MAX_FRAME_BYTES, PROTOCOL_VERSION, decode, encode
from kernelcast.wire.frames.messages import (
    COST_BOUNDS,
    ENDED,
    MAX_VARIANTS,
    MEMSET,
    PERSON,
    PHASES,
    Bye,
    Counters,
    DeviceClaim,
    Frame,
    Hello,
    HintFrame,
    KernelName,
    Names,
    OutcomeFrame,
    OutcomesConfirmed,
    Reception,
    StacksRequest,
    Status,
    TunableClaim,
    Tunables,
)
from kernelcast.wire.frames.rows import KernelRow, KernelRows, VariantRow, VariantRows

__all__ = [
    "COST_BOUNDS",
    "ENDED",
    "HEADER",
    "MAGIC",
    "MAX_FRAME_BYTES",
    "MAX_VARIANTS",
    "MEMSET",
    "PERSON",
    "PHASES",
    "PROTOCOL_VERSION",
    "Bye",
    "Counters",
    "DeviceClaim",
    "Frame",
    "Hello",
    "HintFrame",
    "KernelName",
    "KernelRow",
    "KernelRows",
    "Names",
    "OutcomeFrame",
    "OutcomesConfirmed",
    "Reception",
    "StacksRequest",
    "Status",
    "TunableClaim",
    "Tunables",
    "VariantRow",
    "VariantRows",
    "decode",
    "encode",
]
