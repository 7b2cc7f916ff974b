"""Which series a replica keeps, where all replicas read everything."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """One replica of several; each series is kept by exactly one.

    Attributes:
        index: Which replica, from 0.
        count: How many there are.
    """

    index: int
    count: int

    def keeps(self, hashed: int) -> bool:
        """Whether a series with this hash is ours; the hash is the same in every process.

        Shards of a page go by the upper half of the hash, so that each replica's series fall into all of them.
        """
        return hashed % self.count == self.index
