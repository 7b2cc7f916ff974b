"""Waits of a program for its GPUs, from its calls of CUDA's or HIP's API: for traces that do not record waits.

PyTorch's profiler writes waits (category `cuda_sync`) only with `enable_cuda_sync_events`; calls it always writes.
"""

import re
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from typing import Final, NamedTuple

from kernelcast.exporter.replay.trace import Span

_SYNCHRONIZE: Final = re.compile(r"(?:cuda|cu|hip)(Device|Ctx|Thread|Stream|Event)Synchronize(?:_\w+)?")
_KINDS: Final = {"Device": "context", "Ctx": "context", "Thread": "context", "Stream": "stream", "Event": "event"}


class WaitingCall(NamedTuple):
    """A call that returns when the GPU has done its work; `kind` is the wait's type."""

    thread: Hashable
    start_ns: int
    duration_ns: int
    kind: str


class Launched(NamedTuple):
    """A call that gave work to a GPU: `device` is its index as recorded."""

    thread: Hashable
    start_ns: int
    device: int


def wait_kind(name: str) -> str:
    """The type of wait that a call of this name is: `context`, `stream` or `event`; empty for other calls."""
    match = _SYNCHRONIZE.fullmatch(name)
    return _KINDS[match[1]] if match else ""


def waits(
    calls: Iterable[WaitingCall], launched: Iterable[Launched], default_device: int
) -> Iterator[tuple[Span, str]]:
    """The waits that calls were, each once: a driver's call within a runtime's call is the same wait.

    Args:
        calls: In any order.
        launched: In any order; a wait is for the GPU that its thread gave work to last.
        default_device: The GPU of waits on threads that gave work to none.

    Yields:
        When and for which GPU, and the type.
    """
    work: dict[Hashable, list[tuple[int, int]]] = {}
    for one in launched:
        work.setdefault(one.thread, []).append((one.start_ns, one.device))
    for known in work.values():
        known.sort()
    ends_ns: dict[Hashable, int] = {}
    for call in sorted(calls, key=lambda call: (call.start_ns, -call.duration_ns)):
        end_ns = call.start_ns + call.duration_ns
        if end_ns <= ends_ns.get(call.thread, -1):
            continue
        ends_ns[call.thread] = end_ns
        device = _last(work.get(call.thread, []), call.start_ns, default_device)
        yield Span(call.start_ns, call.duration_ns, device), call.kind


def _last(work: list[tuple[int, int]], time_ns: int, default_device: int) -> int:
    """The GPU of the last work before a moment, else of the first work after it."""
    position = bisect_right(work, (time_ns, -1))
    return work[max(position - 1, 0)][1] if work else default_device
