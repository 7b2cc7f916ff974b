"""The simulated process on one GPU: its identity, and its counters besides kernels."""

import hashlib
from dataclasses import dataclass
from typing import Final

from kernelcast.exporter.simulate.program import BAD_BLOCK_SIZE, Program
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.wire.frames import Counters, KernelRow, TunableClaim, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import SIMULATED, Device, Process

METHOD: Final = "simulation"
COPY_BYTES: Final = 4 * 1024**2
COPIES_PER_SECOND: Final = 20
_COPY_NS: Final = 168_000  # 4 MiB at 25 GB/s, what PCIe 4 x16 gives in practice
_TUNABLE: Final = "block_size"
_ALLOWED: Final = ("32", "48", "64", "96", "128", "192", "256", "384", "512", "1024")


@dataclass(frozen=True, slots=True)
class RankPlacement:
    """Node and GPU of a rank, for all its processes."""

    program: str
    rank: str
    device: Device
    seed: int


class SimulatedProcess:
    """Counts from its start to its end; the kernels' totals are kept by the fleet."""

    def __init__(
        self, place: RankPlacement, program: Program, *, generation: int, start_ns: int, bad: int | None
    ) -> None:
        """Start it.

        Args:
            place: Where.
            program: Its program.
            generation: How many ran here before.
            start_ns: When, Unix nanoseconds.
            bad: The kernel that is badly tuned, and has a tunable.
        """
        text = f"{place.seed}|{place.device.uuid}|{generation}|{start_ns}"
        self.process = Process(
            program=place.program,
            nonce=hashlib.blake2b(text.encode(), digest_size=8).hexdigest(),
            start_ns=start_ns,
            rank=place.rank,
            pid=1000 + generation,
            source=SIMULATED,
        )
        self.program = program
        self._device = place.device
        self._tunables = () if bad is None else (_claim(program, bad, place.device.model_name),)
        self._introduced = False
        self._copies = 0
        self._compute_ns = self._collective_ns = self._copy_ns = self._idle_ns = 0

    def spend(self, *, compute_ns: int, collective_ns: int, copies: int, step_ns: int) -> int:
        """Count one step; returns how long the copies took."""
        copy_ns = copies * _COPY_NS
        self._copies += copies
        collective_ns = min(collective_ns, step_ns)
        compute_ns = min(compute_ns, step_ns - collective_ns)
        alone_ns = min(copy_ns, step_ns - collective_ns - compute_ns)
        self._compute_ns += compute_ns
        self._collective_ns += collective_ns
        self._copy_ns += alone_ns
        self._idle_ns += step_ns - collective_ns - compute_ns - alone_ns
        return copy_ns

    def report(self, totals: tuple[DurationTotals, ...], *, final: bool) -> ProcessReport:
        """All its totals so far."""
        names = self.program.names
        rows = [KernelRow(name.kernel, one.count, one) for name, one in zip(names, totals, strict=True) if one.count]
        by_kernel = {row.kernel: row for row in rows}
        variants = {
            (name.kernel, variant): VariantRow.of(name.kernel, variant, by_kernel[name.kernel].durations)
            for name, variant in zip(names, self.program.variants, strict=True)
            if name.kernel in by_kernel
        }
        introduced, self._introduced = self._introduced, True
        return ProcessReport(
            process=self.process,
            device=self._device,
            names=() if introduced else names,
            rows=tuple(rows),
            counters=self._counters(),
            variants=variants,
            tunables=self._tunables,
            method=METHOD,
            final=final,
        )

    def _counters(self) -> Counters:
        return Counters(
            device=0,
            memcpy=(("h2d", "true", self._copies * COPY_BYTES, self._copies, self._copies * _COPY_NS),),
            device_time=(
                ("compute", self._compute_ns),
                ("collective", self._collective_ns),
                ("copy", self._copy_ns),
                ("overlap", 0),
                ("idle", self._idle_ns),
            ),
        )


def _claim(program: Program, bad: int, device_model: str) -> TunableClaim:
    return TunableClaim(
        name=_TUNABLE,
        value=str(BAD_BLOCK_SIZE),
        allowed=_ALLOWED,
        kind=_TUNABLE,
        kernels=(program.names[bad].signature,),
        device_model=device_model,
    )
