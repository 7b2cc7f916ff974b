"""Output of a source for the aggregator: cumulative totals of one process on one GPU, and device samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kernelcast.columnar import Sample
from kernelcast.wire.frames import Counters, KernelName, KernelRow, Status, TunableClaim, VariantRow
from kernelcast.wire.identity import Device, Process, Versions


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether a process that makes steps stands still.

    Attributes:
        job_id: Identity of its job; a process without one has its node and pid.
        state: What it does meanwhile, as the catalogue says; empty while it moves.
        seconds: Time since its last progress; 0 while it moves.
        stacks: File with the stacks of its threads; empty if there is none.
    """

    job_id: str
    state: str = ""
    seconds: float = 0.0
    stacks: str = ""


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """Cumulative totals of one process on one GPU since the process began; a later report replaces an earlier one.

    Attributes:
        process: The process.
        device: The GPU.
        names: Names of the kernels; at least those in `rows` that no earlier report had.
        rows: Kernels whose totals changed; the others are unchanged.
        counters: Copies, waits, device time; None if unchanged.
        variants: (kernel, variant) to totals, for kernels with several configurations.
        method: The measurement method of the durations.
        status: The present measurement status; None if unchanged.
        version: The probe's version; empty for replay and simulation.
        versions: Versions that the process runs on.
        final: Whether the process has ended; its totals do not change any more.
        lost: Whether it has ended without a word: killed, or crashed; None where that cannot be seen.
        standing: Whether it stands still; None if unchanged, or if it makes no steps.
    """

    process: Process
    device: Device
    names: tuple[KernelName, ...] = ()
    rows: tuple[KernelRow, ...] = ()
    counters: Counters | None = None
    variants: Mapping[tuple[int, str], VariantRow] = field(default_factory=dict)
    tunables: tuple[TunableClaim, ...] | None = None
    method: str = ""
    version: str = ""
    versions: Versions = field(default_factory=Versions)
    status: Status | None = None
    final: bool = False
    lost: bool | None = None
    standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Reports and samples of a source at one moment.

    Attributes:
        reports: Process totals, for the aggregator.
        samples: Device samples, ready to encode, with the host they belong to in `Hostname`.
        done: Whether the source has ended (a replay that reached its end).
    """

    reports: tuple[ProcessReport, ...] = ()
    samples: tuple[Sample, ...] = ()
    done: bool = False


class Source(Protocol):
    """An input of the exporter: NVML, the probe socket, a replay, a simulation."""

    def poll(self, now_ns: int) -> SourceBatch:
        """Return everything new up to `now_ns` (Unix nanoseconds); never blocks. A missing value is no error."""
        ...

    def close(self) -> None:
        """Release the source's resources; safe to call twice."""
        ...
