"""Panels of the page `node`: its GPUs, CPU, memory and links side by side, then GPU by GPU."""

from kernelcast.grafana import node_exporter, promql
from kernelcast.grafana.dashboards.hardware import accelerators, infiniband, trouble
from kernelcast.grafana.dashboards.hardware.devices import GPU, each, each_rate
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, LineStyle, PanelText, Placed, time_series
from kernelcast.grafana.model.targets import Query
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device, profiling

_KIBIBYTE = 1024
_NODE_EXPORTER = "Needs node_exporter for the lines of the node itself."


def side_by_side() -> tuple[Placed, ...]:
    """GPUs, CPU, memory, links."""
    return (_gpus(), _cpu(), _memory(), _links())


def one_gpu() -> Row:
    """The same four panels for each GPU of the node."""
    panels = (_load(), _heat(), _power(), _held())
    return Row("GPU $gpu", panels, collapsed=True, repeat="gpu")


def _gpus() -> Placed:
    text = PanelText("GPUs at work", "Share of time in which each accelerator of the node was at work.")
    query = Query(accelerators.busy(), "{{accelerator}} {{index}} {{GPU_I_ID}}")
    return time_series(text, [query], Axis("percentunit", low=0, high=1), height=6)


def _cpu() -> Placed:
    text = PanelText(
        "CPU",
        "Share of the node's CPU time in use, and threads of programs that wait for a GPU; a busy CPU beside idle GPUs "
        f"means that the host is too slow. {_NODE_EXPORTER}",
    )
    waits = promql.seen_rate(kernel.SYNC_WAIT, free=("gpu", "program", "rank"))
    idle = promql.rate(f'{node_exporter.NODE_CPU}{{mode="idle"}}')
    queries = [
        Query(f"sum by (Hostname) ({waits})", "threads waiting for a GPU"),
        Query(node_exporter.of_node(f"1 - avg by (instance) ({idle})"), "CPU in use"),
    ]
    unit = {
        "matcher": {"id": "byName", "options": "CPU in use"},
        "properties": [{"id": "unit", "value": "percentunit"}],
    }
    return time_series(text, queries, Axis("short", low=0), LineStyle(overrides=(unit,)), height=6)


def _memory() -> Placed:
    text = PanelText(
        "Memory",
        f"Share of each accelerator's memory in use, and of the node's own. {_NODE_EXPORTER}",
        runbooks=("KernelcastGpuMemoryNearlyFull",),
    )
    host = f"1 - {node_exporter.NODE_MEMORY_FREE} / {node_exporter.NODE_MEMORY}"
    queries = [
        Query(accelerators.full(), "{{accelerator}} {{index}} {{GPU_I_ID}}"),
        Query(node_exporter.of_node(f"max by (instance) ({host})"), "node"),
    ]
    return time_series(text, queries, Axis("percentunit", low=0, high=1), height=6)


def _links() -> Placed:
    text = PanelText(
        "Links",
        "Bytes a second over PCIe and NVLink of each GPU, and over the node's InfiniBand ports, both directions added. "
        f"{_NODE_EXPORTER}",
        runbooks=("KernelcastGpuNvlinkDown",),
    )
    pcie = f"{each(profiling.PCIE_TX_BYTES)} + {each(profiling.PCIE_RX_BYTES)}"
    queries = [
        Query(pcie, f"{GPU} PCIe"),
        Query(f"{each_rate(device.NVLINK_BANDWIDTH)} * {_KIBIBYTE}", f"{GPU} NVLink"),
        Query(infiniband.traffic(), "InfiniBand"),
    ]
    return time_series(text, queries, Axis("Bps", low=0), height=6)


def _load() -> Placed:
    text = PanelText("GPU $gpu: utilisation", "Share of time in which a kernel ran, and of memory in use.")
    used, free = each(device.FB_USED), each(device.FB_FREE)
    queries = [
        Query(f"{each(device.GPU_UTIL)} / 100", "utilisation"),
        Query(f"{used} / ({used} + {free})", "memory {{GPU_I_ID}}"),
    ]
    return time_series(text, queries, Axis("percentunit", low=0, high=1), width=6, height=6)


def _heat() -> Placed:
    text = PanelText("GPU $gpu: temperature", "Temperature of the GPU and of its memory.")
    queries = [Query(each(device.GPU_TEMP), "GPU"), Query(each(device.MEMORY_TEMP), "memory")]
    return time_series(text, queries, Axis("celsius"), width=6, height=6)


def _power() -> Placed:
    text = PanelText("GPU $gpu: power", "Power draw of this GPU.")
    return time_series(text, [Query(each(device.POWER_USAGE), "power")], Axis("watt", low=0), width=6, height=6)


def _held() -> Placed:
    text = PanelText("GPU $gpu: SM clock", "Clock of the multiprocessors.")
    query = Query(f"{each(device.SM_CLOCK)} * 1e6", "SM clock")
    return time_series(text, [query], Axis("hertz", low=0), width=6, height=6)


def gpus(*, height: int = 8) -> Row:
    """The node's GPUs, worst first."""
    return Row("GPUs of the node", (trouble.worst_first(height=height),), collapsed=True)
