"""Cumulative totals of a recording's copies, fills and waits per GPU."""

import numpy as np

from kernelcast.exporter.replay.trace import IntArray, Trace
from kernelcast.wire.frames import MEMSET

CopyRow = tuple[str, str, int, int, int]
SyncRow = tuple[str, int, int]


class ReplayedTraffic:
    """Copies by kind and pinned, fills, waits by kind, exact; `TraceSource.poll` advances it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        devices = len(trace.devices)
        self._copies = np.zeros((devices, len(trace.copy_kinds), 3), dtype=np.int64)  # bytes, operations, ns
        self._fills = np.zeros((devices, 3), dtype=np.int64)  # the same
        self._waits = np.zeros((devices, len(trace.sync_kinds), 2), dtype=np.int64)  # calls, ns
        self._copies_counted = 0
        self._fills_counted = 0
        self._syncs_counted = 0

    @property
    def operations(self) -> int:
        """Copies counted so far."""
        return self._copies_counted

    def advance(self, copies: int, fills: int, syncs: int) -> None:
        """Count all copies, fills and waits before these positions that are not counted yet."""
        first, self._copies_counted = self._copies_counted, max(copies, self._copies_counted)
        chosen = slice(first, self._copies_counted)
        columns = self._trace.copies
        duration_ns = columns.spans.duration_ns[chosen]
        amounts = np.stack([columns.size_bytes[chosen], np.ones_like(duration_ns), duration_ns], axis=1)
        np.add.at(self._copies, (columns.spans.device[chosen], columns.kind[chosen]), amounts)

        first, self._fills_counted = self._fills_counted, max(fills, self._fills_counted)
        chosen = slice(first, self._fills_counted)
        spans = self._trace.memsets
        duration_ns = spans.duration_ns[chosen]
        amounts = np.stack([self._trace.memset_bytes[chosen], np.ones_like(duration_ns), duration_ns], axis=1)
        np.add.at(self._fills, spans.device[chosen], amounts)

        first, self._syncs_counted = self._syncs_counted, max(syncs, self._syncs_counted)
        chosen = slice(first, self._syncs_counted)
        waits = self._trace.syncs
        duration_ns = waits.spans.duration_ns[chosen]
        amounts = np.stack([np.ones_like(duration_ns), duration_ns], axis=1)
        np.add.at(self._waits, (waits.spans.device[chosen], waits.kind[chosen]), amounts)

    def copies(self, device: int) -> tuple[CopyRow, ...]:
        """Return rows of `Counters.memcpy` for this GPU's copies and fills so far."""
        rows: list[CopyRow] = []
        for (kind, pinned), amounts in zip(self._trace.copy_kinds, self._listed(self._copies[device]), strict=True):
            size_bytes, operations, nanoseconds = amounts
            if operations:
                rows.append((kind, pinned, size_bytes, operations, nanoseconds))
        size_bytes, operations, nanoseconds = self._fills[device].tolist()
        if operations:
            rows.append((MEMSET, "", size_bytes, operations, nanoseconds))
        return tuple(rows)

    def waits(self, device: int) -> tuple[SyncRow, ...]:
        """Rows of `Counters.sync` for the kinds of wait that the recording has, from 0 on."""
        totals = self._listed(self._waits[device])
        return tuple(
            (kind, calls, waited_ns) for kind, (calls, waited_ns) in zip(self._trace.sync_kinds, totals, strict=True)
        )

    @staticmethod
    def _listed(table: IntArray) -> list[list[int]]:
        rows: list[list[int]] = table.tolist()
        return rows
