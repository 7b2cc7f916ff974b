"""Reads the processes that use a GPU, and their shares of it: for GPUs that several pods share by time slices.

Source: nvml.h, nvmlDeviceGetComputeRunningProcesses and nvmlDeviceGetProcessUtilization.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kernelcast.exporter.nvml.sampling import fields
from kernelcast.exporter.nvml.sampling.codes import Codes, error_name
from kernelcast.exporter.nvml.sampling.gpu_values import Failed, LostGpuError
from kernelcast.exporter.nvml.sampling.inventory import Gpu
from kernelcast.exporter.nvml.sampling.reading import ProcessUse
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

MAX_PROCESSES: Final = 64
"""Processes of one GPU or MIG instance with series of their own, largest memory first; the rest is summed."""
OTHER: Final = "other"
OTHER_PID: Final = 0
"""The pid of that sum."""
LARGEST_PID: Final = 2**31 - 1
"""Jetson's NVML lists processes with pid 0, or above it. Source: wentbackward/nv-monitor 17."""
PERIOD_NS: Final = NANOSECONDS_PER_SECOND
"""NVML samples at least this often: a process without a newer sample was idle. NVML is not asked again earlier."""
NANOSECONDS_PER_MICROSECOND: Final = 1000
LONGEST_NAME: Final = 64
KINDS: Final = tuple(zip(("mps", "compute", "graphics"), fields.PROCESS_CALLS, strict=True))
"""Lists of processes; a process in several has the kind of the first."""

Shares = tuple[int | None, int | None, int | None, int | None]
"""Percent: kernels, memory, encoder, decoder; None where NVML gives none."""
IDLE: Final[Shares] = (0, 0, 0, 0)
UNKNOWN: Final[Shares] = (None, None, None, None)
KindAndMemory = tuple[str, int | None]
"""A process's kind, and its memory in bytes."""


@dataclass(slots=True)
class Utilization:
    """The last answer of one GPU about its processes.

    Attributes:
        asked_ns: When it was asked, running time in nanoseconds.
        seen_us: Running time of the newest sample, microseconds; NVML is asked for later samples only.
        shares: Shares by pid; an absent process was idle.
    """

    asked_ns: int
    seen_us: int = 0
    shares: dict[int, Shares] = field(default_factory=dict)


class Processes:
    """The processes of all GPUs and MIG instances.

    Args:
        nvml: pynvml, or a double of it.
        codes: Its error codes.
        failed: Called with errors, except those for missing values.
        proc: The proc file system.
        name_of: Names of processes by pid, for a recording; without it they are read from `proc`.

    Attributes:
        with_names: Whether names are read from `proc`; can be changed.
    """

    def __init__(
        self,
        nvml: Any,
        codes: Codes,
        failed: Failed,
        *,
        proc: Path = Path("/proc"),
        name_of: Callable[[int], str] | None = None,
    ) -> None:
        self._nvml = nvml
        self._codes = codes
        self._failed = failed
        self._proc = proc
        self._name_of = name_of
        self.with_names = True
        self._last_answers: dict[str, Utilization] = {}
        self._names: dict[tuple[str, str], dict[int, str]] = {}

    def read(self, gpu: Gpu, now_ns: int, ahead_ns: int = 0) -> tuple[ProcessUse, ...]:
        """Return the processes of a GPU or MIG instance. A GPU in MIG mode has none; its instances have them.

        Args:
            gpu: The GPU or instance.
            now_ns: Running time in nanoseconds.
            ahead_ns: How far that is ahead of the node's clock, by which NVML gives the times of its samples.

        Raises:
            LostGpuError: The GPU is gone.
        """
        if gpu.mig_mode and not gpu.gi_id:
            return ()
        found: dict[int, KindAndMemory] = {}
        for handle in gpu.mig_handles or (gpu.handle,):
            for kind, call in KINDS:
                for one in self._running_processes(call, handle):
                    if not 0 < one.pid <= LARGEST_PID:
                        continue
                    held = (kind, one.usedGpuMemory)
                    found[one.pid] = _joined(found[one.pid], held) if one.pid in found else held
        shares = self._shares(gpu, now_ns, ahead_ns // NANOSECONDS_PER_MICROSECOND) if found and not gpu.gi_id else None
        ranked = sorted(found, key=lambda pid: (-(found[pid][1] or 0), pid))
        names = self._named(gpu, ranked[:MAX_PROCESSES])
        return _bounded(
            ProcessUse(pid, *found[pid], *(UNKNOWN if shares is None else shares.get(pid, IDLE)), names.get(pid, ""))
            for pid in ranked
        )

    def _running_processes(self, call: str, handle: Any) -> Iterable[Any]:
        try:
            processes: Iterable[Any] = getattr(self._nvml, call)(handle)
        except AttributeError:  # this pynvml does not have the call
            return ()
        except self._nvml.NVMLError as error:
            self._check_error(call, error)
            return ()
        return processes

    def _shares(self, gpu: Gpu, now_ns: int, ahead_us: int) -> dict[int, Shares] | None:
        """Utilization by pid; None where this GPU gives none."""
        answer = self._last_answers.setdefault(gpu.uuid, Utilization(asked_ns=now_ns - PERIOD_NS))
        if now_ns - answer.asked_ns < PERIOD_NS:
            return answer.shares
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(gpu.handle, max(answer.seen_us - ahead_us, 0))
        except self._nvml.NVMLError as error:
            # pynvml raises NVMLError(NVML_SUCCESS) where NVML succeeds at once, because it has no sample.
            if error.value not in (self._nvml.NVML_ERROR_NOT_FOUND, self._nvml.NVML_SUCCESS):
                self._check_error(fields.PROCESS_UTILIZATION_CALL, error)
                return None
            samples = []
        answer.asked_ns, answer.shares = now_ns, {}
        for one in sorted(samples, key=lambda sample: int(sample.timeStamp)):
            shares = (one.smUtil, one.memUtil, one.encUtil, one.decUtil)
            # Some driver versions also return entries that they have not filled, with pid 0 or shares above 100.
            if not one.pid or max(shares) > fields.FULL_PERCENT:
                answer.shares.setdefault(one.pid, UNKNOWN)
                continue
            answer.shares[one.pid] = shares
            answer.seen_us = max(answer.seen_us, one.timeStamp + ahead_us)
        return answer.shares

    def _named(self, gpu: Gpu, pids: list[int]) -> Mapping[int, str]:
        """Their names, which are read once as long as a process stays on the GPU."""
        before = self._names.get(gpu.key, {})
        self._names[gpu.key] = names = {pid: before.get(pid) or self._name(pid) for pid in pids}
        return names

    def _name(self, pid: int) -> str:
        if not self.with_names:
            return ""
        if self._name_of is not None:
            return self._name_of(pid)[:LONGEST_NAME]
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").strip()[:LONGEST_NAME]
        except OSError:
            return ""

    def _check_error(self, call: str, error: Any) -> None:
        if not self._codes.expected(error.value):
            self._failed(call, error_name(error))
        if self._codes.lost(error.value):
            raise LostGpuError


def _joined(one: KindAndMemory, other: KindAndMemory) -> KindAndMemory:
    """Merge a process that is in two lists with the same memory, or on two compute instances with a memory each."""
    return (one[0], _sum((one[1], other[1]))) if one[0] == other[0] else one


def _bounded(ranked: Iterable[ProcessUse]) -> tuple[ProcessUse, ...]:
    """Return the first `MAX_PROCESSES` as they are, and the sum of the others as one."""
    uses = tuple(ranked)
    rest = uses[MAX_PROCESSES:]
    if not rest:
        return uses
    other = ProcessUse(
        OTHER_PID,
        OTHER,
        _sum(use.memory_bytes for use in rest),
        _sum(use.sm_percent for use in rest),
        _sum(use.memory_percent for use in rest),
        _sum(use.enc_percent for use in rest),
        _sum(use.dec_percent for use in rest),
        OTHER,
    )
    return (*uses[:MAX_PROCESSES], other)


def _sum(parts: Iterable[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
