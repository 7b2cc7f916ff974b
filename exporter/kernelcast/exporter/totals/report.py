"""Output of a source for the aggregator: cumulative totals of one process on one GPU, and device samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kernelcast.columnar import Sample
from kernelcast.wire.frames import Counters, KernelName, KernelRow, Status, TunableClaim, VariantRow
from kernelcast.wire.identity import Device, Process


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """Cumulative totals of one process on one GPU since the process began; a later report replaces an earlier one.

    Attributes:
        process: Who.
        device: Where.
        names: Names of the kernels; at least those that `rows` has and no earlier report had.
        rows: Kernels whose totals changed; the others stay as last reported.
        counters: Copies, waits, device time; None leaves them as they were.
        variants: (kernel, variant) to totals, for kernels whose configuration is known to vary.
        method: How the durations were measured.
        status: How the process is measured right now; None where it says nothing new.
        version: The probe's version; empty for replay and simulation.
        final: The process has ended; its totals stay for ever.
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
    status: Status | None = None
    final: bool = False


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """Reports and samples of a source at one moment.

    Attributes:
        reports: Process totals, for the aggregator.
        samples: Device samples, ready to encode, with the host they belong to in `Hostname`.
        done: The source has nothing more to say, ever (a replay that reached its end).
    """

    reports: tuple[ProcessReport, ...] = ()
    samples: tuple[Sample, ...] = ()
    done: bool = False


class Source(Protocol):
    """An input of the exporter: NVML, the probe socket, a replay, a simulation."""

    def poll(self, now_ns: int) -> SourceBatch:
        """Everything new up to `now_ns` (Unix nanoseconds). Does not block; a missing value is absent, not an error."""
        ...

    def close(self) -> None:
        """Release the source's resources; safe to call twice."""
        ...
