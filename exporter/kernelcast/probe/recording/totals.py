"""The recorder's data: totals of one kernel, and of one device, in bounded memory."""

from collections.abc import Sequence
from typing import Final, TypeVar

from kernelcast.probe.recording.texts import Dimensions, dimensions, plain
from kernelcast.wire.frames import MAX_VARIANTS, Counters, KernelName, KernelRow, VariantRow
from kernelcast.wire.histogram import DurationTotals, bucket_index
from kernelcast.wire.kernels import MAX_VARIANT_CHARACTERS, OTHER, kernel_id

MAX_KINDS: Final = 32
MAX_KIND_CHARACTERS: Final = 32
MAX_NAME_CHARACTERS: Final = 64
# Real traces have 192 to 579 combinations of kernel, grid and block.
MAX_DEVICE_VARIANTS: Final = 4096
# Largest total. A greater one would exceed the 64 bits of a frame, and a frame that cannot be encoded blocks all
# others.
TOTAL_LIMIT: Final = 2**63
_BUCKETS: Final = range(bucket_index(1), bucket_index(2**62) + 1)

_Key = TypeVar("_Key", str, tuple[str, str])


class Cell:
    """One kernel's totals on one device, with the launch configuration last seen. The recorder's lock protects it."""

    __slots__ = (
        "block",
        "changed",
        "changed_variants",
        "durations",
        "graph_launches",
        "grid",
        "kernel",
        "launches",
        "local",
        "occupancy",
        "queue_delay_ns",
        "queue_delays",
        "registers",
        "shared",
        "signature",
        "variants",
    )

    def __init__(self, signature: str) -> None:
        self.signature = signature
        self.kernel = kernel_id(signature)
        self.launches = 0
        self.durations = DurationTotals()
        self.queue_delays = 0
        self.queue_delay_ns = 0
        self.graph_launches = 0
        self.grid: Dimensions = None
        self.block: Dimensions = None
        self.registers = 0
        self.shared = 0
        self.local = 0
        self.occupancy = 0.0
        self.variants: dict[str, list[int]] = {}
        self.changed = True
        self.changed_variants: set[str] = set()

    def name(self) -> KernelName:
        """The `Names` entry of this kernel, to which its rows refer."""
        return KernelName(
            self.kernel,
            self.signature,
            dimensions(self.grid),
            dimensions(self.block),
            self.registers,
            self.shared,
            self.local,
            self.occupancy,
        )

    def row(self) -> KernelRow:
        """A copy of its totals."""
        return KernelRow(
            self.kernel,
            self.launches,
            self.durations.copy(),
            self.queue_delays,
            self.queue_delay_ns,
            self.graph_launches,
        )

    def take_variants(self) -> tuple[VariantRow, ...]:
        """Return the variants that changed since the last call."""
        changed, self.changed_variants = self.changed_variants, set()
        return tuple(
            VariantRow(self.kernel, variant, count, sum_ns, squares)
            for variant in sorted(changed)
            for count, sum_ns, squares in [self.variants[variant]]
        )

    def mark_unsent(self) -> None:
        """Mark everything as unsent, for a new exporter."""
        self.changed = True
        self.changed_variants = set(self.variants)


class DeviceTotals:
    """Totals of one device. `by_raw` finds a kernel by the name that the program gave, `by_signature` by its own."""

    __slots__ = (
        "by_raw",
        "by_signature",
        "device_time",
        "gaps",
        "memcpy",
        "pools",
        "regions",
        "sync",
        "unseen",
        "variants",
    )

    def __init__(self) -> None:
        self.by_raw: dict[str, Cell] = {}
        self.by_signature: dict[str, Cell] = {}
        self.variants = 0
        """Number of kept variants of all kernels."""
        self.memcpy: dict[tuple[str, str], list[int]] = {}
        self.sync: dict[str, list[int]] = {}
        self.device_time: dict[str, list[int]] = {}
        self.regions: dict[str, list[int]] = {}
        self.unseen: dict[str, list[int]] = {}
        self.pools: dict[tuple[str, str], int] = {}
        self.gaps: DurationTotals | None = None

    def counters(self, device: int) -> Counters:
        """Return its own counters besides kernels, without those of the whole process."""
        return Counters(
            device,
            memcpy=tuple((*key, row[0], row[1], row[2]) for key, row in sorted(self.memcpy.items())),
            sync=tuple((key, row[0], row[1]) for key, row in sorted(self.sync.items())),
            device_time=tuple((key, row[0]) for key, row in sorted(self.device_time.items())),
            launch_gaps=self.gaps.copy() if self.gaps else None,
            pools=tuple((*key, value) for key, value in sorted(self.pools.items())),
            regions=tuple((key, row[0], row[1], row[2]) for key, row in sorted(self.regions.items())),
            unseen=tuple((key, row[0]) for key, row in sorted(self.unseen.items())),
        )

    def variant(self, cell: Cell, text: str) -> list[int]:
        """Return count, sum and sum of squares of a variant; variants beyond the limit share one."""
        text = plain(str(text)[:MAX_VARIANT_CHARACTERS])
        if text not in cell.variants:
            told_apart = len(cell.variants) - (OTHER in cell.variants)
            if told_apart >= MAX_VARIANTS - 1 or self.variants >= MAX_DEVICE_VARIANTS:
                text = OTHER
            self.variants += text not in cell.variants
        cell.changed_variants.add(text)
        return cell.variants.setdefault(text, [0, 0, 0])


def increase(rows: dict[_Key, list[int]], key: _Key, other: _Key, amounts: Sequence[int]) -> bool:
    """Add to the row of a kind, or to `other` beyond the limit; False if a total would be too large."""
    row = rows.get(key)
    if row is None:
        row = rows.setdefault(key if len(rows) < MAX_KINDS else other, [0] * len(amounts))
    for position, amount in enumerate(amounts):  # plain loops: the program's thread waits for this
        if row[position] + amount >= TOTAL_LIMIT:
            return False
    for position, amount in enumerate(amounts):
        row[position] += amount
    return True


def check_durations(durations: DurationTotals) -> None:
    """Raise ValueError for impossible sums of durations, because the exporter would reject the whole frame."""
    numbers = (durations.count, durations.sum_ns, durations.zero_count, *durations.buckets.values())
    if set(map(type, numbers)) != {int} or min(numbers) < 0 or max(numbers) >= TOTAL_LIMIT:
        raise ValueError(numbers)
    if durations.zero_count + sum(durations.buckets.values()) != durations.count:
        raise ValueError(durations.count)
    if durations.buckets and not (min(durations.buckets) in _BUCKETS and max(durations.buckets) in _BUCKETS):
        raise ValueError(durations.buckets)
    if not 0 <= durations.sum_squares_ns2 <= durations.sum_ns**2:
        raise ValueError(durations.sum_squares_ns2)


def kind_text(text: str) -> str:
    """Make a kind of copy, wait or state valid for a frame."""
    return plain(text[:MAX_KIND_CHARACTERS])
