"""Work that a replica's members share: longer data at a step, or, if it lasts, slow workers in every stage.

`WorkerTest` takes the shared part out of each member's excess before it tests the member.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.peers.compare import median, others_median, without_shared
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.persistence import Persistence

EVIDENCE_OF_SLOW_REPLICA: Final = 35.0
"""About nine slow steps in a row; sequences that are longer in turn do not reach it."""


class SharedWork:
    """Takes the excess that all stages of a replica share out of the members' excess; one thread uses it.

    A replica that is slow at every step for long has no long sequences in turn: its excess is left to its members.
    """

    def __init__(self, groups: PeerGroups) -> None:
        self._groups = groups
        replicas = int(groups.column.max(initial=-1)) + 1
        row = PeerGroups.of(np.zeros(replicas, dtype=np.int64), np.arange(replicas))
        self._lasting = Persistence(row, evidence_to_start=EVIDENCE_OF_SLOW_REPLICA)

    def without(self, raw: Floats, reference: Floats, limit: float) -> Floats:
        """Excess of the members without the shared part.

        Args:
            raw: Shape (n,), log ratios to the reference.
            reference: The same, NaN for members that were found slow and say nothing about the data.
            limit: Excess above which a step is slow.
        """
        if not self._groups.aligned:
            return raw
        grid = self._groups.grid(raw)
        known = self._groups.grid(reference)
        several = np.sum(~np.isnan(known), axis=0) > 1
        self._lasting.update(np.where(several, median(known, axis=0), np.nan), limit)
        shared = np.where(self._lasting.active, np.nan, known)
        return self._groups.members(without_shared(grid, shared))


def without_stage(groups: PeerGroups, raw: Floats, reference: Floats) -> Floats:
    """Excess of the members without the part that their group shares: work that moved to one stage."""
    common = others_median(groups.grid(reference), lower=True)
    return raw - np.maximum(np.nan_to_num(groups.members(common), nan=0.0), 0.0)
