"""New series of one batch, from `Wires.arrivals` to `Slots.admit`: shared parts are stored, and processed, once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.bridge.tables.columns import Int32Array, Int64Array
from kernelcast.bridge.tables.families import Heading
from kernelcast.bridge.tables.hashing import stable_hashes
from kernelcast.bridge.tables.placement import Placement, SeriesOrigin

PLACED: Final = 0
"""Value of `refused` for a series that is not refused."""


@dataclass(frozen=True, slots=True)
class NewSeries:
    """k series that are new to the store; m of them are placed, the others refused.

    Attributes:
        refused: Shape (k,), PLACED, or the reason (a code of `columns`) why a series is not stored. The other columns
            contain only placed series.
        headings: The families, in the order of their first series.
        heading: Shape (m,), index of each series' family.
        origins: Writers and producers, in the order of their first series.
        origin: Shape (m,), index of each series' origin.
        labels: Label sets, each once: `a="b",c="d"`, escaped, without braces.
        label_set: Shape (m,), index of each series' labels.
    """

    refused: Int32Array
    headings: Sequence[Heading]
    heading: Int32Array
    origins: Sequence[SeriesOrigin]
    origin: Int32Array
    labels: Sequence[bytes]
    label_set: Int32Array

    @classmethod
    def of(cls, placements: Iterable[Placement | int]) -> "NewSeries":
        """Make arrivals from series that were placed one by one, or refused."""
        refused: list[int] = []
        rows: list[tuple[int, int, int]] = []
        headings: dict[Heading, int] = {}
        origins: dict[SeriesOrigin, int] = {}
        labels: dict[bytes, int] = {}
        for place in placements:
            if isinstance(place, int):
                refused.append(place)
                continue
            refused.append(PLACED)
            heading = Heading(
                place.name,
                place.kind,
                place.help,
                place.unit,
                place.part_of,
                place.cumulative,
                place.source,
            )
            origin = SeriesOrigin(place.writer, place.producer, place.target, place.host)
            rows.append(
                (
                    headings.setdefault(heading, len(headings)),
                    origins.setdefault(origin, len(origins)),
                    labels.setdefault(place.labels, len(labels)),
                )
            )
        columns = np.array(rows, np.int32).reshape(-1, 3)
        return cls(
            np.array(refused, np.int32),
            tuple(headings),
            columns[:, 0].copy(),
            tuple(origins),
            columns[:, 1].copy(),
            tuple(labels),
            columns[:, 2].copy(),
        )

    def hashes(self) -> Int64Array:
        """Return `stable_hash` of each placed series, of shape (m,)."""
        names = [heading.name for heading in self.headings]
        return stable_hashes(names, self.heading, self.labels, self.label_set)
