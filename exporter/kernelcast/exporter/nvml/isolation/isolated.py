"""Samples GPUs in a process of its own: a call of NVML that hangs or crashes costs readings; the exporter goes on."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self

from kernelcast.exporter.nvml import presence
from kernelcast.exporter.nvml.isolation.child import ChildEndedError, WorkerProcess
from kernelcast.exporter.nvml.isolation.xid_memory import XidMemory
from kernelcast.exporter.nvml.sampling.inventory import GPUS
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import DeviceError

PYNVML: Final = ("pynvml",)
EVERY_GPU: Final = "all"
"""Names all GPUs of the node in a request to release them."""
START_SECONDS: Final = 60.0
"""Time limit for NVML's start: without a persistence daemon the driver wakes every GPU, seconds each."""
FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 300.0
"""The wait before a new process doubles from the first to the longest."""
STOP_SECONDS: Final = 2.0
"""Time for a process to end by itself before it is killed."""
MAX_HUNG: Final = 3
"""Limit of processes that hang in the driver and cannot be killed; with that many no new one is started."""

_log = get_logger(__name__)


class IsolatedSampler:
    """A `Sampler` in another process, which is replaced when it hangs, crashes, or has lost its driver.

    A GPU can be released for a time: another process opens the other GPUs only. NVML keeps a GPU open for as long as it
    is initialised, so the process ends in any case.

    Only the daemon's thread uses it. No call waits longer than `timeout_seconds` and `END_SECONDS`; `close` and
    `release` wait twice `STOP_SECONDS`. A process that is replaced is killed; one that cannot be killed is kept in
    `_replaced` and reaped when it ends.

    Args:
        options: The sampler's options.
        timeout_seconds: An answer that takes longer counts as a hang; can be changed.
        nvml: pynvml, or its replacement; see `worker.load`.
        gpus: The driver's directory of GPUs.
        has_gpu: Whether the node has a GPU, whatever its driver does.

    Attributes:
        starts: Number of processes started.
        crashes: Number of those that ended by themselves.
        hangs: Number of those that hung and were killed.
        hanging: The call that hung last, until NVML answers again; None while it does.
        trouble: The reason why NVML cannot be used; empty while it can.
        blind: Whether NVML cannot be used although the node has an NVIDIA GPU.
    """

    def __init__(
        self,
        options: SamplerOptions,
        *,
        timeout_seconds: float,
        nvml: Sequence[str] = PYNVML,
        gpus: Path = GPUS,
        has_gpu: Callable[[], bool] = presence.has_gpu,
    ) -> None:
        self._options, self._nvml = options, tuple(nvml)
        self.timeout_seconds = timeout_seconds
        self._gpus, self._has_gpu = gpus, has_gpu
        self._listed: frozenset[str] = frozenset()
        self._child: WorkerProcess | None = None
        self._replaced: list[tuple[WorkerProcess, float]] = []
        self._found: tuple[GpuReading, ...] = ()
        self._current: dict[str, GpuReading] = {}
        self._released: dict[str, float] = {}
        self._retry_at = 0.0
        self._wait_seconds = FIRST_RETRY_SECONDS
        self._xids = XidMemory()
        self.starts = self.crashes = self.hangs = 0
        self.hanging: str | None = None
        self.trouble, self.blind = "", False

    def start(self) -> Self:
        """Start the process; without a driver, `sample` starts a new one later, at growing intervals.

        A driver that does not answer in time raises nothing, because it may wake its GPUs first; `sample` waits for it.

        Raises:
            DeviceError: There is no driver, or no process can be started.
        """
        child = self._ensure_started(time.monotonic() + self.timeout_seconds)
        if self.trouble:
            raise DeviceError(self.trouble)
        if child is not None and not child.is_ready:
            _log.warning("NVML has not answered yet", timeout_seconds=self.timeout_seconds)
        return self

    def found(self) -> tuple[GpuReading, ...]:
        """Return the GPUs and MIG instances that the last process found at its start, without values."""
        return self._found

    def sample(self, time_ns: int) -> NodeReading | None:
        """Read every GPU; None if NVML does not answer in time. `time_ns` becomes the reading's time."""
        deadline = time.monotonic() + self.timeout_seconds
        self._reap()
        self._end_releases(time.monotonic())
        if self._released and not self._others():
            return self._xids.complete(NodeReading(time_ns, all_answer=True, released=tuple(self._released)))
        child = self._ensure_started(deadline)
        if child is None or not child.is_ready:
            return None
        try:
            child.ask(do="sample", time_ns=time_ns)
            answer = child.answer(deadline)
        except ChildEndedError as error:
            self._crashed(child, str(error))
            return None
        if answer is None:
            self._hung(child)
            return None
        return self._accept(child, answer)

    def change(self, options: SamplerOptions) -> None:
        """Use other options from the next sample on."""
        self._options = options
        if self._child is not None:
            try:
                self._child.ask(do="change", options=self._present_options.to_json())
            except ChildEndedError as error:
                self._crashed(self._child, str(error))

    def release(self, gpu: str, seconds: float) -> tuple[GpuReading, ...]:
        """Close a GPU, so that it can be reset or unbound from the driver, and leave it closed for a time.

        Args:
            gpu: Its index or UUID; `all` for every GPU, and then NVML is not used at all.
            seconds: How long, unless `resume` ends it before.

        Returns:
            The released GPUs. No process of the exporter has them open.

        Raises:
            DeviceError: There is no such GPU, or the process hangs in the driver and cannot be ended.
        """
        named = self._named(gpu)
        self._released |= dict.fromkeys((one.uuid for one in named), time.monotonic() + seconds)
        self._restart()
        self._end_replaced()
        self._reap()
        if self._replaced:
            raise DeviceError(
                "the process that calls NVML hangs in the driver and cannot be ended, so it may have the GPU open; "
                "stop the exporter, or reboot the node"
            )
        return named

    def resume(self, gpu: str) -> tuple[GpuReading, ...]:
        """Open a released GPU again, or `all` of them, at the next sample; returns them.

        Raises:
            DeviceError: There is no such GPU, or it is not released.
        """
        named = tuple(one for one in self._named(gpu) if one.uuid in self._released)
        if not named:
            raise DeviceError(f"GPU {gpu} is not released; the exporter reads it")
        for one in named:
            del self._released[one.uuid]
        self._restart()
        return named

    def close(self) -> None:
        """End the process; safe to call twice."""
        if self._child is not None:
            self._child.stop()
            self._replaced.append((self._child, 0.0))
            self._child = None
        self._end_replaced()
        for child, _ in self._replaced:
            child.close()
        self._replaced.clear()

    def _named(self, gpu: str) -> tuple[GpuReading, ...]:
        """The GPUs that an index, a UUID or `all` names.

        Raises:
            DeviceError: There is none.
        """
        # Indexes move while a GPU is away, so one that is read comes before a released one with the same index.
        known = sorted(self._current.values(), key=lambda one: one.uuid in self._released)
        named = [one for one in known if gpu in (one.uuid, one.index, EVERY_GPU)]
        if not named:
            here = ", ".join(f"{one.index} ({one.uuid})" for one in known) or "none"
            raise DeviceError(f"GPU {gpu} is not known; the exporter reads {here}; name one of them, or all")
        return tuple(named if gpu == EVERY_GPU else named[:1])

    def _others(self) -> tuple[str, ...]:
        """PCI addresses of the GPUs that are not released."""
        return tuple(one.pci_bus_id for uuid, one in self._current.items() if uuid not in self._released)

    @property
    def _present_options(self) -> SamplerOptions:
        return replace(self._options, bus_ids=self._others()) if self._released else self._options

    def _end_releases(self, now: float) -> None:
        over = [uuid for uuid, until in self._released.items() if until <= now]
        for uuid in over:
            del self._released[uuid]
            _log.info("a GPU is no longer released", uuid=uuid)
        if over:
            self._restart()

    def _restart(self) -> None:
        """Replace the process at once, because other GPUs are to be opened."""
        if self._child is not None:
            self._replace(self._child)
        self._retry_at, self._wait_seconds = 0.0, FIRST_RETRY_SECONDS

    def _end_replaced(self) -> None:
        """Wait for the end of all replaced processes, and kill those that do not end by themselves."""
        deadline = time.monotonic() + STOP_SECONDS
        for child, _ in self._replaced:
            if not child.wait(max(0.0, deadline - time.monotonic())):
                child.kill()
        deadline = time.monotonic() + STOP_SECONDS
        for child, _ in self._replaced:
            child.wait(max(0.0, deadline - time.monotonic()))

    def _note_current(self, gpus: Sequence[GpuReading]) -> None:
        released = {uuid: one for uuid, one in self._current.items() if uuid in self._released}
        self._current = released | {one.uuid: one for one in gpus if not one.gi_id}

    def _ensure_started(self, deadline: float) -> WorkerProcess | None:
        """Return the process, started if there is none and the wait is over; waits for its list of GPUs once."""
        now = time.monotonic()
        if self._child is None:
            if now < self._retry_at or len(self._replaced) >= MAX_HUNG:
                return None
            self._listed = self._list()
            try:
                self._child = WorkerProcess(self._nvml, self._present_options)
            except OSError as error:
                self._unusable(f"NVML's process cannot be started: {error}; see the limits of processes and files")
                self._retry_later()
                return None
            self.starts += 1
            self._xids.restart()
        elif not self._child.is_ready:
            deadline = now
        if not self._child.is_ready:
            self._receive_first(self._child, deadline)
        return self._child

    def _receive_first(self, child: WorkerProcess, deadline: float) -> None:
        """Process a new process's first message, its list of GPUs or an error, if it comes by the deadline."""
        try:
            answer = child.answer(deadline)
        except ChildEndedError as error:
            self._crashed(child, str(error))
            return
        if answer is None:
            if time.monotonic() - child.started > START_SECONDS:
                self._hung(child)
        elif "error" in answer:
            self._unusable(answer["error"])
            self._replace(child)
        else:
            self.trouble, self.blind, child.is_ready = "", False, True
            self._found = tuple(GpuReading.from_json(one) for one in answer["found"])
            self._xids.found(self._found)
            self._note_current(self._found)

    def _accept(self, child: WorkerProcess, answer: dict[str, Any]) -> NodeReading:
        reading = replace(NodeReading.from_json(answer["reading"]), released=tuple(self._released))
        self._note_current(reading.gpus)
        if self.hanging is not None:
            _log.info("NVML answers again", call=self.hanging)
            self.hanging = None
        all_gone = reading.missing and len(reading.missing) >= len({gpu.uuid for gpu in reading.gpus})
        if not all_gone:
            self._wait_seconds = FIRST_RETRY_SECONDS
        if all_gone or not self._list() <= self._listed:
            # All GPUs are gone, as when the driver is replaced: only a new process loads the new driver's library. Or
            # a GPU was added: NVML lists only the GPUs that existed when it was initialised.
            self._replace(child)
        return self._xids.complete(reading)

    def _list(self) -> frozenset[str]:
        try:
            return frozenset(path.name for path in self._gpus.iterdir())
        except OSError:
            return frozenset()

    def _crashed(self, child: WorkerProcess, how: str) -> None:
        self.crashes += 1
        _log.warning("NVML's process has ended", how=how, call=child.call)
        self._replace(child)

    def _hung(self, child: WorkerProcess) -> None:
        self.hangs, self.hanging = self.hangs + 1, child.call
        _log.warning("NVML hangs; its process is replaced", call=child.call, timeout_seconds=self.timeout_seconds)
        child.kill()
        self._replace(child)

    def _replace(self, child: WorkerProcess) -> None:
        """Stop a process, count the XIDs that it has not handed over, and allow a new one after the wait."""
        self._xids.add(child.xids)
        child.stop()
        self._replaced.append((child, time.monotonic() + STOP_SECONDS))
        self._child = None
        self._retry_later()
        self._reap()

    def _retry_later(self) -> None:
        """Allow a new process after the wait, which doubles."""
        self._retry_at = time.monotonic() + self._wait_seconds
        self._wait_seconds = min(self._wait_seconds * 2, LONGEST_RETRY_SECONDS)

    def _unusable(self, reason: str) -> None:
        if reason != self.trouble:
            self.blind = self._has_gpu()
            if self.blind:
                _log.warning("no GPU metrics, although the node has an NVIDIA GPU", reason=reason)
            else:
                _log.info("no GPU metrics", reason=reason)
        self.trouble = reason

    def _reap(self) -> None:
        """Close replaced processes that have ended, and kill those that have not ended in time."""
        left, self._replaced = self._replaced, []
        for child, limit in left:
            if child.ended():
                child.close()
                continue
            if time.monotonic() > limit:
                child.kill()
            self._replaced.append((child, limit))
