"""Metrics of each NVLink of a GPU, from the exporter's NVML source.

DCGM has a field for each number of a link; here the link is a label, so that one query asks for all links.
"""

from typing import Final

from kernelcast.wire.catalogue.devices.device import DEVICE_LABELS
from kernelcast.wire.catalogue.model import Kind
from kernelcast.wire.catalogue.naming import kafka_metric

UP: Final = kafka_metric(
    "kernelcast.gpu.nvlink.up",
    Kind.GAUGE,
    "Whether an NVLink is up, also where it sleeps to save power: 1 or 0. A link that was never connected is 0.",
    unit="",
    labels=(*DEVICE_LABELS, "link"),
    source="NVML field 165, or nvmlDeviceGetNvLinkState",
)
IO: Final = kafka_metric(
    "kernelcast.gpu.nvlink.io",
    Kind.COUNTER,
    'Data that an NVLink carried; direction="receive" or "transmit", as the GPU sees it.',
    unit="By",
    labels=(*DEVICE_LABELS, "link", "direction"),
    source="NVML fields 139 and 138, KiB; else 204 and 202",
)
ERRORS: Final = kafka_metric(
    "kernelcast.gpu.nvlink.errors",
    Kind.COUNTER,
    "Errors of an NVLink, by NVML's kinds; which there are depends on the GPU's generation.",
    unit="{error}",
    labels=(*DEVICE_LABELS, "link", "error"),
    source="NVML fields 161 to 163, up to Hopper; 206 to 215, 219 and 221 after",
)

ROWS: Final = (UP, IO, ERRORS)
