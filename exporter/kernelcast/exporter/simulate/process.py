"""The simulated process on one GPU: its identity, and its counters besides kernels."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kernelcast.exporter.programs.process import ProbeProcess
from kernelcast.exporter.simulate.activity import Activity
from kernelcast.exporter.simulate.program import BAD_BLOCK_SIZE, Program
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.wire.frames import KernelRow, Status, TunableClaim, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import SIMULATED, Device, Process, Versions

METHOD: Final = "simulation"
VERSION: Final = "simulated"
DRIVER_VERSION: Final = "570.124.06"
_VERSIONS: Final = Versions(image="simulated/train:1", cuda="12.8", driver=DRIVER_VERSION)
_ACTIVE: Final = Status(method=METHOD, state="active", reason="", sample_ratio=1.0)
_FIRST_PID: Final = 10_000
_PIDS_OF_A_GPU: Final = 1_000
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
            pid=_FIRST_PID + _PIDS_OF_A_GPU * int(place.device.gpu) + generation % _PIDS_OF_A_GPU,
            source=SIMULATED,
        )
        self.program = program
        self._device = place.device
        self._tunables = () if bad is None else (_claim(program, bad, place.device.model_name),)
        self._introduced = False
        self.activity = Activity()

    def report(
        self, totals: tuple[DurationTotals, ...], queue_delay_ns: Sequence[int], *, used_mib: float, final: bool
    ) -> ProcessReport:
        """All its totals so far.

        Args:
            totals: Durations of each kernel.
            queue_delay_ns: Time between call and start of each kernel's launches.
            used_mib: Memory that it has on the GPU.
            final: Whether it has ended.
        """
        names, graphs = self.program.names, self.program.from_graphs
        rows = [
            KernelRow(name.kernel, one.count, one, one.count, delay_ns, one.count if graph else 0)
            for name, one, delay_ns, graph in zip(names, totals, queue_delay_ns, graphs, strict=True)
            if one.count
        ]
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
            counters=self.activity.counters(used_mib),
            variants=variants,
            tunables=self._tunables,
            method=METHOD,
            version=VERSION,
            versions=_VERSIONS,
            status=_ACTIVE,
            final=final,
        )

    @property
    def reporting(self) -> ProbeProcess:
        """The process as the probe's socket knows it."""
        return ProbeProcess(
            process=self.process,
            devices=(self._device,),
            tunables=self._tunables,
            method=METHOD,
            version=VERSION,
            connected=True,
            peer_pid=self.process.pid,
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
