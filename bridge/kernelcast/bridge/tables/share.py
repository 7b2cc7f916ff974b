"""Which series a replica keeps, where all replicas read everything."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import Int64Array


@dataclass(frozen=True, slots=True)
class Share:
    """One replica of several; each series is kept by exactly one.

    Attributes:
        index: Which replica, from 0.
        count: How many there are.
    """

    index: int
    count: int

    def keeps(self, hashed: Int64Array) -> NDArray[np.bool_]:
        """Which series are ours, by their hashes, which are the same in every process.

        Shards of a page go by the upper half of the hash, so that each replica's series fall into all of them.
        """
        kept: NDArray[np.bool_] = hashed % self.count == self.index
        return kept
