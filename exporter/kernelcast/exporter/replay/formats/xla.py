"""Traces of JAX and TensorFlow (XLA): Chrome trace events without a category, told apart by process and thread names.

Source: openxla/xla, xla/backends/profiler/gpu/cupti_collector.cc: a GPU is the process `/device:GPU:0`, a stream its
thread `Stream #14(Compute)`; other threads there (`XLA Ops`, `Steps`) sum the same work up. Calls are on `/host:CPU`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kernelcast.exporter.replay.formats.chrome import Event
from kernelcast.wire.kernels import WHOLE_GRAPHS

MOST_EVENTS: Final = 1_000_000
"""XLA leaves out the latest events beyond this number. Sources: jax-ml/jax 21295, openxla/xla 44702."""
AT_THE_LIMIT: Final = (
    f"XLA writes {MOST_EVENTS:,} events at most, the earliest ones; record fewer steps, or set "
    "TF_PROFILER_TRACE_VIEWER_MAX_EVENTS"
)
"""How a file with so many events ends."""

_DEVICE: Final = re.compile(r".*/device:GPU:(\d+)\b.*")
_STREAM: Final = re.compile(r"Stream #(\d+)\b.*")
_MEMCPY: Final = re.compile(r"Memcpy([HDP]2[HDP])", re.IGNORECASE)
_DETAIL: Final = re.compile(r"(\w+):(\S+)")
_MEMORY: Final = frozenset({"memalloc_details", "MemFree_details", "MemoryResidency_details"})


def named(metadata: Iterable[Event]) -> dict[tuple[str, str], str]:
    """Names of processes and threads, by process and thread; a process has no thread."""
    names: dict[tuple[str, str], str] = {}
    for event in metadata:
        kind, arguments = event.get("name"), event.get("args")
        if kind in ("process_name", "thread_name") and isinstance(arguments, dict):
            thread = str(event.get("tid")) if kind == "thread_name" else ""
            names[str(event.get("pid")), thread] = str(arguments.get("name") or "")
    return names


def classified(event: Event, names: Mapping[tuple[str, str], str]) -> tuple[str, Event]:
    """The category of an event and the event as PyTorch writes it; an event that is not read has its origin's name."""
    pid, tid = str(event.get("pid")), str(event.get("tid"))
    process, thread = names.get((pid, ""), ""), names.get((pid, tid), "")
    arguments = event.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    device, stream = _DEVICE.fullmatch(process), _STREAM.fullmatch(thread)
    correlation = arguments.get("correlation_id")
    if device is None:
        if correlation is not None and process:
            return "cuda_runtime", {**event, "args": {"correlation": correlation}}
        return process or (f"process {pid}" if event.get("pid") is not None else ""), event
    if stream is None or _MEMORY.intersection(arguments):
        return f"{process} {thread}".rstrip(), event
    common = {"device": int(device[1]), "stream": int(stream[1]), "correlation": correlation}
    return _work(event, arguments, common)


def _work(event: Event, arguments: Event, common: dict[str, Any]) -> tuple[str, Event]:
    name = str(event.get("name", ""))
    memcpy = _MEMCPY.match(name)
    if memcpy or "memcpy_details" in arguments:
        details = _details(arguments.get("memcpy_details"))
        pinned = next((kind for kind in ("pinned", "pageable") if kind in details.values()), "")
        direction = memcpy[1].upper().replace("2", "to") if memcpy else ""
        full = f"Memcpy {direction} ({pinned.title()})"
        return "gpu_memcpy", {**event, "name": full, "args": {**common, "bytes": details.get("size", 0)}}
    if name.lower().startswith("memset"):
        details = _details(arguments.get("memset_details", arguments.get("Memset_details")))
        return "gpu_memset", {**event, "args": {**common, "bytes": details.get("num_bytes", 0)}}
    if "cuda_graph_exec_id" in arguments and "kernel_details" not in arguments:
        return "kernel", {**event, "name": WHOLE_GRAPHS, "args": {**common, "graph node id": 1}}
    details = _details(arguments.get("kernel_details"))
    static, dynamic = (details.get(f"{kind}_shared", "0") for kind in ("static", "dynamic"))
    shape = {side: details[side].split(",") for side in ("grid", "block") if side in details}
    more = {
        "registers per thread": details.get("regs", 0),
        "shared memory": sum(int(part) for part in (static, dynamic) if part.isdecimal()),
        "est. achieved occupancy %": details.get("occ_pct", "0").partition(".")[0],
        "graph node id": arguments.get("cuda_graph_node_id", 0),
    }
    return "kernel", {**event, "args": {**common, **shape, **more}}


def _details(text: Any) -> dict[str, str]:
    """Parses `regs:32 grid:1,1,1`."""
    return dict(_DETAIL.findall(text)) if isinstance(text, str) else {}
