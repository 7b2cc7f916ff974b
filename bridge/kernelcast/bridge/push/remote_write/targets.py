"""`target_info` for `conversion`: resource attributes other than job and instance, one point per producer and batch.

A producer is a job and an instance. It may have several resources at a time; after an upgrade it has another one.
"""

from typing import Final

import numpy as np

from kernelcast.bridge.push.remote_write.directory import Directory
from kernelcast.bridge.push.remote_write.rows import SampleRows
from kernelcast.bridge.tables.columns import Int32Array
from kernelcast.bridge.tables.placement import Placement
from kernelcast.bridge.translation.attributes import joined, producer_labels, rendered
from kernelcast.columnar import Attributes
from kernelcast.wire.catalogue.bridge import TARGET_INFO

Producer = tuple[str, str]
"""Job and instance."""
NO_TARGET: Final = -1
"""Number of a resource without attributes for `target_info`."""
KEPT_MS: Final = 300_000
"""How long a resource without points keeps its attributes in its producer's `target_info`: Prometheus' lookback."""
ONE_BITS: Final = int(np.float64(1.0).view(np.int64))
"""Bits of 1.0, the value of every `target_info`."""


class TargetInfoProducers:
    """Producers that have a `target_info`, and their resources, by number; for one thread.

    `_live` has, by producer, its resources and the time of their newest points in the last batch with any.
    """

    def __init__(self, directory: Directory) -> None:
        """Start without producers.

        Args:
            directory: Assigns the series.
        """
        self._directory = directory
        self._numbers: dict[tuple[Producer, Attributes], int] = {}
        self._resources: list[tuple[Producer, Attributes]] = []
        self._live: dict[Producer, dict[int, int]] = {}
        self._series: dict[Producer, tuple[list[int], int]] = {}

    def number(self, producer: Producer, target: Attributes) -> int:
        """Return the number of a producer's resource, NO_TARGET without attributes."""
        if not target or not any(producer):
            return NO_TARGET
        number = self._numbers.setdefault((producer, target), len(self._resources))
        if number == len(self._resources):
            self._resources.append((producer, target))
        return number

    def rows(self, owners: Int32Array, points: SampleRows) -> SampleRows:
        """The newest time of each producer's points, as points of its `target_info`.

        Args:
            owners: int32, the resource of each point, NO_TARGET for none.
            points: As many points.
        """
        order = np.lexsort((points.time_ms, owners))
        sorted_owners = owners[order]
        last = np.ones(len(order), np.bool_)
        last[:-1] = sorted_owners[1:] != sorted_owners[:-1]
        newest = order[last & (sorted_owners != NO_TARGET)]
        newest = newest[np.argsort(points.time_ms[newest], kind="stable")]
        row_of: dict[Producer, int] = {}
        for row, owner in zip(newest.tolist(), owners[newest].tolist(), strict=True):
            producer = self._resources[owner][0]
            row_of[producer] = row
            self._live.setdefault(producer, {})[owner] = int(points.time_ms[row])
        rows = np.array(list(row_of.values()), np.intp)
        times = points.time_ms[rows]
        series = [self._series_of(producer, now_ms) for producer, now_ms in zip(row_of, times.tolist(), strict=True)]
        ones = np.full(len(rows), ONE_BITS, np.int64)
        return SampleRows(np.array(series, np.int32), points.message[rows], times, np.zeros_like(ones), ones)

    def _series_of(self, producer: Producer, now_ms: int) -> int:
        """Return the series of a producer's `target_info`, by the resources that have points about now.

        Of two values of one attribute the greater is taken, whichever came first.
        """
        live = {owner: ms for owner, ms in self._live[producer].items() if abs(ms - now_ms) <= KEPT_MS}
        self._live[producer] = live
        owners, series = self._series.get(producer, ([], NO_TARGET))
        if owners != sorted(live):
            merged: dict[str, str] = {}
            for owner in live:
                for key, value in self._resources[owner][1]:
                    merged[key] = max(value, merged.get(key, ""))
            own = producer_labels(producer)
            labels = rendered(joined(sorted(merged.items()), reserved=tuple(own)) | own)
            row = TARGET_INFO
            series = self._directory.series(
                Placement(row.prometheus_name, row.kind, row.help, labels, cumulative=False, writer="")
            )
            self._series[producer] = sorted(live), series
        return series
