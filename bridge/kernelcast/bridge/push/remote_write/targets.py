"""`target_info` for `conversion`: resource attributes other than job and instance, one point per producer and batch."""

from typing import Final

import numpy as np

from kernelcast.bridge.push.remote_write.directory import Directory
from kernelcast.bridge.push.remote_write.rows import SampleRows
from kernelcast.bridge.tables.columns import Int32Array
from kernelcast.bridge.tables.placement import Placement
from kernelcast.bridge.translation.attributes import joined, producer_labels, rendered
from kernelcast.columnar import Attributes
from kernelcast.wire.catalogue.bridge import TARGET_INFO

NO_TARGET: Final = -1
"""Number of a producer without attributes for `target_info`."""
ONE_BITS: Final = int(np.float64(1.0).view(np.int64))
"""Bits of 1.0, the value of every `target_info`."""


class TargetInfoProducers:
    """Producers that have a `target_info`, by number; for one thread."""

    def __init__(self, directory: Directory) -> None:
        """Start without producers.

        Args:
            directory: Assigns the series.
        """
        self._directory = directory
        self._numbers: dict[tuple[str, str], int] = {}
        self._attributes: list[dict[str, str]] = []
        self._series: list[int] = []

    def number(self, producer: tuple[str, str], target: Attributes) -> int:
        """The number of a producer, NO_TARGET without attributes; new attributes are added to the known ones.

        Of two values of one attribute the greater is taken, whichever came first.
        """
        if not target or not any(producer):
            return NO_TARGET
        number = self._numbers.get(producer)
        if number is None:
            number = self._numbers[producer] = len(self._series)
            self._attributes.append({})
            self._series.append(NO_TARGET)
        known = self._attributes[number]
        merged = known | {key: max(value, known.get(key, "")) for key, value in target}
        if merged != known:
            self._attributes[number] = merged
            own = producer_labels(producer)
            labels = rendered(joined(sorted(merged.items()), reserved=tuple(own)) | own)
            row = TARGET_INFO
            self._series[number] = self._directory.series(
                Placement(row.prometheus_name, row.kind, row.help, labels, cumulative=False, writer="")
            )
        return number

    def rows(self, owners: Int32Array, points: SampleRows) -> SampleRows:
        """The newest time of each producer's points, as points of its `target_info`.

        Args:
            owners: int32, the producer of each point, NO_TARGET for none.
            points: As many points.
        """
        order = np.lexsort((points.time_ms, owners))
        sorted_owners = owners[order]
        last = np.ones(len(order), np.bool_)
        last[:-1] = sorted_owners[1:] != sorted_owners[:-1]
        newest = order[last & (sorted_owners != NO_TARGET)]
        series = np.array([self._series[owner] for owner in owners[newest].tolist()], np.int32)
        ones = np.full(len(newest), ONE_BITS, np.int64)
        return SampleRows(series, points.message[newest], points.time_ms[newest], np.zeros_like(ones), ones)
