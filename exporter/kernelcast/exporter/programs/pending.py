"""Totals of one process that wait for the next poll, or for the next save of the state."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernelcast.wire.frames import Counters, Frame, KernelName, KernelRow, KernelRows, Names, VariantRow, VariantRows


@dataclass(slots=True)
class PendingTotals:
    """Cumulative totals by device; a later total of the same kernel replaces the earlier one. A `ProbeSession` has two.

    Attributes:
        rows: Device to kernel number to totals.
        variants: Device to (kernel number, variant) to totals.
        counters: Device to copies, waits and device time.
    """

    rows: dict[int, dict[int, KernelRow]] = field(default_factory=dict)
    variants: dict[int, dict[tuple[int, str], VariantRow]] = field(default_factory=dict)
    counters: dict[int, Counters] = field(default_factory=dict)

    @property
    def devices(self) -> set[int]:
        """Devices with totals."""
        return {*self.rows, *self.variants, *self.counters}

    def update(self, later: "PendingTotals") -> None:
        """Replace totals by later ones of the same process."""
        for device, rows in later.rows.items():
            self.rows.setdefault(device, {}).update(rows)
        for device, variants in later.variants.items():
            self.variants.setdefault(device, {}).update(variants)
        self.counters.update(later.counters)

    def frames(self, names: Mapping[int, KernelName]) -> Iterator[Frame]:
        """Encode the totals as frames, like a program's, kernel names first.

        Args:
            names: Names of the process's kernels.
        """
        used = {kernel for rows in self.rows.values() for kernel in rows}
        used |= {kernel for variants in self.variants.values() for kernel, _ in variants}
        if used:
            yield Names(tuple(names[kernel] for kernel in sorted(used)))
        for device, rows in self.rows.items():
            yield KernelRows(device, tuple(rows.values()))
        for device, variants in self.variants.items():
            yield VariantRows(device, tuple(variants.values()))
        yield from self.counters.values()
