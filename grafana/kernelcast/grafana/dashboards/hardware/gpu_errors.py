"""A row of panels about errors of a GPU, on the page `gpu`: XIDs, memory errors, remapped rows, recovery."""

from collections.abc import Iterable
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness
from kernelcast.grafana.dashboards.hardware.devices import GPU, each
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import (
    Axis,
    EmptyText,
    LineStyle,
    PanelText,
    Placed,
    stat,
    state_timeline,
    time_series,
)
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.wire.catalogue import exporter, xids
from kernelcast.wire.catalogue.devices import device, gpu
from kernelcast.wire.catalogue.xids import XidSubject

_XID: Final = "Hostname, gpu, xid, err_msg"
_NONE_IN_RANGE: Final = "none in this range"
_ANY_GPU: Final = promql.series(gpu.GPU_UP, free=("gpu",))
_LOG_IS_READ: Final = f"group({liveness.row(exporter.KERNEL_LOG_ERRORS)}) and on () group({_ANY_GPU})"
"""An exporter reads the log, and what it publishes arrives."""


def row() -> Row:
    """First errors that need action, then signs of wear."""
    panels = (
        *(_uncorrectable(), _failed_remaps(), _xid_table(), _logged_xids(), _answering(), _recovery()),
        *(_ecc(), _remapped(), _firmware()),
    )
    return Row("Errors: XIDs, memory, recovery", panels, collapsed=True)


def xids_in_range() -> Placed:
    """A figure for the first screen."""
    text = PanelText(
        "XID errors",
        "XID errors of the GPUs chosen in this time range; many are a program's fault, see the table of errors.",
        EmptyText(_NONE_IN_RANGE, liveness.GPUS),
        runbooks=("KernelcastGpuXidHardware", "KernelcastGpuXid"),
    )
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "green"), (1, "red")))
    happened = promql.happened(promql.series(gpu.XID_ERRORS), of="Hostname, UUID, xid", window="$__range")
    return stat(text, [Query(f"sum({happened})")], axis, width=4, height=3)


def _numbers(codes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(codes)))


def _figure(title: str, description: str, expr: str, proof: str, words: str = "none") -> Placed:
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "green"), (1, "red")))
    return stat(PanelText(title, description, EmptyText(words, proof)), [Query(expr)], axis, width=12, height=3)


def _uncorrectable() -> Placed:
    happened = promql.happened(promql.series(device.ECC_DBE_VOLATILE), of="Hostname, UUID", window="$__range")
    description = "Double-bit memory errors in this time range: data was lost, and a program with it."
    return _figure(
        "Uncorrectable memory errors",
        description,
        f"sum({happened})",
        liveness.row(device.ECC_DBE_VOLATILE),
        _NONE_IN_RANGE,
    )


def _failed_remaps() -> Placed:
    description = "GPUs that ran out of spare memory rows, and have to be replaced."
    return _figure(
        "Failed row remaps",
        description,
        f"sum({each(device.ROW_REMAP_FAILURE)}) > 0",
        liveness.row(device.ROW_REMAP_FAILURE),
    )


def _answering() -> Placed:
    text = PanelText("GPUs that answer", "Whether each GPU that an exporter knows answered, is gone, or NVML hangs.")
    query = Query(f"max by (Hostname, gpu) ({promql.series(gpu.GPU_UP)})", GPU)
    return state_timeline(text, [query], {"0": ("gone", "red"), "1": ("answers", "green")}, height=5)


def _xid_table() -> Placed:
    text = PanelText(
        "XIDs",
        "Errors that the driver reported: number in this time range, and time of the last one. Usually a program's: "
        f"{_numbers(xids.numbers(XidSubject.PROGRAM))}. The GPU needs a reset or its node a reboot: "
        f"{_numbers(xids.numbers(urgent=True))}.",
        if_empty=EmptyText("No XID in this time range", liveness.GPUS),
    )
    happened = promql.happened(
        promql.series(gpu.XID_ERRORS), of="Hostname, UUID, xid", by=f"{_XID}, UUID", window="$__range"
    )
    last = f"max by ({_XID}) ({promql.series(gpu.XID_LAST)}) * 1000"
    return table(
        text,
        [column(last), column(f"sum by ({_XID}) ({happened})")],
        (
            Column("Hostname", "Node", width=93),
            Column("gpu", "GPU", width=50),
            Column("xid", "XID", width=55),
            Column("err_msg", "Meaning"),
            Column("Value #B", "In this time range", "short", width=129, decimals=0),
            Column("Value #A", "Last", "dateTimeAsIso", width=143),
        ),
        sort="Last",
        width=12,
        height=6,
    )


def _logged_xids() -> Placed:
    text = PanelText(
        "XIDs in the kernel's log",
        "XIDs that the driver has logged, including the time without an exporter. A GPU that NVML no longer lists has "
        "its bus address only. Needs exporter.kernel_log.",
        EmptyText("No XID in the log in this time range", _LOG_IS_READ),
    )
    by = f"{_XID}, pci_bus_id"
    errors = promql.series(gpu.KERNEL_LOG_XIDS, free=("gpu",))
    logged = f"max by ({by}) ({promql.happened(errors, window='$__range')})"
    last = f"max by ({by}) ({promql.series(gpu.KERNEL_LOG_XID_LAST, free=('gpu',))}) * 1000"
    columns = (
        Column("Hostname", "Node", width=83),
        Column("gpu", "GPU", width=50),
        Column("pci_bus_id", "Bus", width=90),
        Column("xid", "XID", width=50),
        Column("err_msg", "Meaning", least=120),
        Column("Value #B", "Count", "short", width=55, decimals=0),
        Column("Value #A", "Last", "dateTimeAsIso", width=143),
    )
    return table(text, [column(last), column(logged)], columns, sort="Last", width=12, height=6)


def _ecc() -> Placed:
    text = PanelText(
        "Memory errors",
        "ECC errors over time. Single-bit errors are corrected; many of them precede worse errors. A double-bit error "
        "ends a program.",
    )
    kinds = ((device.ECC_SBE_VOLATILE, "single-bit"), (device.ECC_DBE_VOLATILE, "double-bit"))
    queries = [Query(promql.marked(promql.series(row), of="Hostname, gpu"), f"{GPU} {word}") for row, word in kinds]
    queries.append(liveness.absent(row for row, _ in kinds))
    return time_series(text, queries, Axis("short", low=0, decimals=0), LineStyle(bars=True))


def _remapped() -> Placed:
    text = PanelText(
        "Remapped rows",
        "Memory rows that were replaced by spare rows since the GPU was made. Uncorrectable ones mean that data was "
        "lost.",
    )
    queries = [
        Query(each(device.UNCORRECTABLE_REMAPPED_ROWS), f"{GPU} uncorrectable"),
        Query(each(device.CORRECTABLE_REMAPPED_ROWS), f"{GPU} correctable"),
        liveness.absent((device.UNCORRECTABLE_REMAPPED_ROWS, device.CORRECTABLE_REMAPPED_ROWS)),
    ]
    return time_series(text, queries, Axis("short", low=0, decimals=0))


def _recovery() -> Placed:
    text = PanelText(
        "Recovery",
        "The driver's recommendation for each GPU.",
    )
    query = Query(f"max by (Hostname, gpu) ({promql.series(device.RECOVERY_ACTION)})", GPU)
    actions = {
        "0": ("nothing", "green"),
        "1": ("reset the GPU", "red"),
        "2": ("reboot the node", "red"),
        "3": ("drain P2P", "orange"),
        "4": ("drain P2P and reset", "red"),
    }
    return state_timeline(text, [query], actions, height=5)


def _firmware() -> Placed:
    text = PanelText(
        "Driver and firmware",
        "Versions and serial number of each GPU, where the counters table asks for these labels. If one GPU is slower "
        "than its peers, compare the versions first.",
    )
    label_columns = (
        Column(device.DRIVER_VERSION_LABEL, "Driver", width=110),
        Column(device.VBIOS_LABEL, "VBIOS", width=140),
        Column(device.INFOROM_IMAGE_LABEL, "Inforom image", width=150),
        Column(device.SERIAL_LABEL, "Serial number", width=140),
    )
    columns = (Column("Hostname", "Node", width=180), Column("gpu", "GPU", width=60), Column("modelName", "Model"))
    by = ", ".join(one.source for one in (*columns, *label_columns))
    gpus = column(f"group by ({by}) ({promql.measured_here()})")
    return table(text, [gpus], (*columns, *label_columns), sort="Node", width=24, height=8)
