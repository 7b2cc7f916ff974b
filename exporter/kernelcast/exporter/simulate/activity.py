"""Counters of a simulated process besides its kernels: copies, waits, gaps, regions, memory pools."""

from typing import Final

from kernelcast.wire.frames import Counters
from kernelcast.wire.histogram import DurationTotals

COPY_BYTES: Final = 4 * 1024**2
COPIES_PER_SECOND: Final = 20
COPIES_BACK_RATIO: Final = 10
"""Copies to the GPU for each copy back, which has a quarter of the bytes."""
_COPY_BACK_BYTES: Final = COPY_BYTES // 4
_COPY_NS: Final = 168_000  # 4 MiB at 25 GB/s, what PCIe 4 x16 gives in practice
_LANES: Final = 16.0
_LAUNCHES_PER_STEP: Final = 250
_ITEMS_PER_STEP: Final = 32
_LAUNCHES_PER_GAP: Final = 5
_GAP_FACTORS: Final = (0.25, 0.75, 2.0)
"""Gaps are a third of each of these, times their mean."""
_OVERHEAD_NS_PER_LAUNCH: Final = 1_000
_WAITING_SHARE: Final = 0.3
"""Share of the GPU's work for whose end the program's thread waits."""
_REGIONS: Final = (("forward", 0.35), ("backward", 0.5), ("optimizer", 0.15))
_PHASES: Final = (("data", 0.08), ("forward", 0.3), ("backward", 0.47), ("optimizer", 0.12), ("other", 0.03))
"""Share of a step that each of its phases takes."""
_MIB: Final = 1024**2
_POOL_USED: Final = 0.9
_PINNED_BYTES: Final = 16 * COPY_BYTES


class Activity:
    """Cumulative counters of one process on one GPU, from its start."""

    def __init__(self) -> None:
        self._copies = self._copies_back = self._copy_ns_total = self._back_ns_total = 0
        self._compute_ns = self._collective_ns = self._copy_ns = self._idle_ns = 0
        self._launches = 0
        self._gaps = DurationTotals()
        self._gaps_counted = 0
        self._wall_ns = 0

    @property
    def copied_bytes(self) -> tuple[int, int]:
        """Bytes copied to the GPU and from it."""
        return self._copies * COPY_BYTES, self._copies_back * _COPY_BACK_BYTES

    def spend(
        self, *, launches: int, compute_ns: int, collective_ns: int, copies: int, lanes: float, step_ns: int
    ) -> None:
        """Count one step.

        Args:
            launches: Kernel launches.
            compute_ns: GPU time of kernels without collectives.
            collective_ns: GPU time of collectives.
            copies: Copies to the GPU.
            lanes: Lanes of the PCIe link, on which the speed of copies depends.
            step_ns: Length of the step.
        """
        back = (self._copies + copies) // COPIES_BACK_RATIO - self._copies // COPIES_BACK_RATIO
        to_ns = round(copies * _COPY_NS * _LANES / lanes)
        back_ns = round(back * _COPY_NS / 4 * _LANES / lanes)
        self._copies += copies
        self._copies_back += back
        self._copy_ns_total += to_ns
        self._back_ns_total += back_ns
        collective_ns = min(collective_ns, step_ns)
        compute_ns = min(compute_ns, step_ns - collective_ns)
        alone_ns = min(to_ns + back_ns, step_ns - collective_ns - compute_ns)
        idle_ns = step_ns - collective_ns - compute_ns - alone_ns
        self._compute_ns += compute_ns
        self._collective_ns += collective_ns
        self._copy_ns += alone_ns
        self._idle_ns += idle_ns
        self._launches += launches
        self._wall_ns += step_ns if launches else 0
        self._wait_between(idle_ns)

    def counters(self, used_mib: float) -> Counters:
        """All totals so far, and the pools as of now.

        Args:
            used_mib: Memory that the process has on the GPU.
        """
        steps = self._launches // _LAUNCHES_PER_STEP
        waited_ns = round(_WAITING_SHARE * (self._compute_ns + self._collective_ns))
        to_bytes, back_bytes = self.copied_bytes
        return Counters(
            device=0,
            memcpy=(
                ("h2d", "true", to_bytes, self._copies, self._copy_ns_total),
                ("d2h", "false", back_bytes, self._copies_back, self._back_ns_total),
            ),
            sync=(("stream", steps, round(0.9 * waited_ns)), ("event", 4 * steps, round(0.1 * waited_ns))),
            device_time=(
                ("compute", self._compute_ns),
                ("collective", self._collective_ns),
                ("copy", self._copy_ns),
                ("overlap", 0),
                ("idle", self._idle_ns),
            ),
            overhead_ns=self._launches * _OVERHEAD_NS_PER_LAUNCH,
            launch_gaps=self._gaps.copy(),
            pools=_pools(used_mib),
            regions=tuple(self._regions()),
            unseen=(("graph", 0),),
            steps=steps,
            items=_ITEMS_PER_STEP * steps,
            step_ns=self._wall_ns if steps else 0,
            phases=tuple((phase, round(share * self._wall_ns)) for phase, share in _PHASES) if steps else (),
            running_ns=self._wall_ns,
            measured_ns=self._wall_ns,
            waits_measured_ns=self._wall_ns,
        )

    def _wait_between(self, idle_ns: int) -> None:
        """Divide the idle time of a step into gaps."""
        gaps = self._launches // _LAUNCHES_PER_GAP - self._gaps_counted
        self._gaps_counted += gaps
        for number, factor in enumerate(_GAP_FACTORS):
            times = (gaps + number) // len(_GAP_FACTORS)
            if times:
                self._gaps.observe(round(idle_ns / gaps * factor), times)

    def _regions(self) -> list[tuple[str, int, int, int]]:
        gpu_ns = self._compute_ns + self._collective_ns
        return [
            (name, round(share * self._launches), round(share * gpu_ns), round(share * self._wall_ns))
            for name, share in _REGIONS
        ]


def _pools(used_mib: float) -> tuple[tuple[str, str, int], ...]:
    total = round(used_mib * _MIB)
    used = round(_POOL_USED * total)
    return (
        ("device", "used", used),
        ("device", "free", total - used),
        ("device", "total", total),
        ("pinned", "used", _PINNED_BYTES // 2),
        ("pinned", "free", _PINNED_BYTES // 2),
        ("pinned", "total", _PINNED_BYTES),
    )
