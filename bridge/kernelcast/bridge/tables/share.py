"""The share of all series that a replica keeps, if all replicas read everything."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import Int64Array


@dataclass(frozen=True, slots=True)
class Share:
    """Share of one replica; exactly one replica keeps each series.

    Attributes:
        index: Index of the replica, from 0.
        count: Number of replicas.
    """

    index: int
    count: int

    def keeps(self, hashed: Int64Array) -> NDArray[np.bool_]:
        """Return a mask of the series that this replica keeps, given their `stable_hash`.

        The lower half of the hash selects the replica. The upper half selects the shard of a page, so that each replica
        has series in all shards.
        """
        kept: NDArray[np.bool_] = hashed % self.count == self.index
        return kept
