"""Sequential test whether a member is slow at nearly every step, or only now and then as others are.

Wald's sequential probability ratio test on the events "slow at this step". One step adds a bounded amount, so that
no single value decides. The usual frequency of slow steps is learnt from the member's past and its peers; where slow
steps come in turn, as with long sequences, more of them are needed.

Source: A. Wald, Sequential Tests of Statistical Hypotheses, 1945.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.peers.groups import PeerGroups

SLOW_WHEN_FAULTY: Final = 0.98
"""Share of slow steps of a slow member: with it, slow and normal steps in turn add up to nothing."""
SLOW_WHEN_HEALTHY: Final = 0.02
"""Smallest assumed share of slow steps of a healthy member."""
MOST_SLOW_WHEN_HEALTHY: Final = 0.6
"""Largest assumed share, so that a slow step always speaks against a member, by at least ln(0.98 / 0.6)."""
EVIDENCE_TO_START: Final = 8.0
"""Wald's bound for one false start in e^8, about 3,000, healthy courses; three slow steps reach it.

With 5, 8 and 11, 118, 117 and 112 of 120 simulated slow workers are named within three steps, and 7, 0 and 0 others
(`benchmarks.predictor stragglers`, 20 jobs of each kind, seed 33).
"""
MOST_EVIDENCE: Final = 2.5
"""A bound in multiples of the evidence to start, so that a finding ends about six steps after the last slow one."""
PRIOR_STEPS: Final = 3.0
"""Normal steps that are assumed before the first one, in the rate of slow steps of a member and of its peers."""
TURN_STEPS: Final = 1.0
"""The same in the rate of slow steps in turn."""
FEWEST_IN_TURN: Final = 3
"""Members of a group: with fewer, leaving out the slowest other one leaves none."""
DECAY: Final = 0.98
"""Factor on learnt counts at each step, so that a member's rate follows changes."""


class Persistence:
    """State of the test for each member; one thread uses it."""

    # `evidence`, shape (n,), is the log likelihood ratio of "faulty" to "healthy", from 0 to its bound; `active`,
    # shape (n,), says whether a finding about the member lasts.

    def __init__(self, groups: PeerGroups) -> None:
        self._groups = groups
        self.evidence: Floats = np.zeros(groups.size)
        self.active: Bools = np.zeros(groups.size, dtype=np.bool_)
        self._slow = np.zeros(groups.size)  # decayed count of slow steps while the member was healthy
        self._seen = np.zeros(groups.size)  # the same of all its steps
        self._pending_slow = np.zeros(groups.size)  # counts of the present course, not known to be healthy yet
        self._pending_seen = np.zeros(groups.size)

    def update(self, excess: Floats, limit: Floats | float) -> tuple[Bools, Bools, Bools]:
        """Take in one step.

        Args:
            excess: Shape (n,), log ratio to the reference; NaN leaves a member's state as it is.
            limit: Excess above which a step is slow, one for all or shape (n,); half of it suffices while a
                finding lasts.

        Returns:
            Shape (n,) each: slow at this step, finding started, finding ended.
        """
        known = ~np.isnan(excess)
        slow = known & (excess > np.where(self.active, limit / 2, limit))
        healthy = self._healthy_rate()
        gain = np.where(slow, np.log(SLOW_WHEN_FAULTY / healthy), np.log((1 - SLOW_WHEN_FAULTY) / (1 - healthy)))
        self.evidence = np.clip(self.evidence + np.where(known, gain, 0.0), 0.0, EVIDENCE_TO_START * MOST_EVIDENCE)
        started = ~self.active & (self.evidence >= EVIDENCE_TO_START)
        ended = self.active & (self.evidence <= 0)
        self.active = (self.active | started) & ~ended
        self._count(known, slow)
        return slow, started, ended

    @property
    def suspects(self) -> Bools:
        """Shape (n,), members with evidence against them, found slow or not yet."""
        suspected: Bools = self.active | (self.evidence > 0)
        return suspected

    def _healthy_rate(self) -> Floats:
        own = self._slow / (self._seen + PRIOR_STEPS)
        row, rows = self._groups.row, self._groups.rows
        slow = np.bincount(row, weights=self._slow, minlength=rows)[row] - self._slow
        seen = np.bincount(row, weights=self._seen, minlength=rows)[row] - self._seen
        usual = np.maximum(np.maximum(own, slow / (seen + PRIOR_STEPS)), self._rate_in_turn())
        return np.clip(usual, SLOW_WHEN_HEALTHY, MOST_SLOW_WHEN_HEALTHY)

    def _rate_in_turn(self) -> Floats:
        """Share of slow steps of the other members, courses that still run included; the slowest of them left out.

        Where slow steps come in turn, several members have had one. One faulty member or a single hiccup does not
        count, so that a second slow worker is found as fast as the first.
        """
        slow = self._groups.grid(np.where(self.active, 0.0, self._slow + self._pending_slow))
        seen = self._groups.grid(np.where(self.active, 0.0, self._seen + self._pending_seen))
        slow, seen = np.nan_to_num(slow), np.nan_to_num(seen)
        columns = np.arange(slow.shape[1])
        first = slow.argmax(axis=1)
        second = np.where(columns == first[:, None], -1.0, slow).argmax(axis=1)
        slowest = np.where(columns == first[:, None], second[:, None], first[:, None])
        rest = [each.sum(axis=1)[:, None] - each - np.take_along_axis(each, slowest, axis=1) for each in (slow, seen)]
        alone = slow.shape[1] < FEWEST_IN_TURN
        return self._groups.members(np.zeros_like(slow) if alone else rest[0] / (rest[1] + TURN_STEPS))

    def _count(self, known: Bools, slow: Bools) -> None:
        """Learn how often healthy members are slow; a course that may become a finding is counted once it is over."""
        counted = known & ~self.active
        self._pending_seen = np.where(self.active, 0.0, self._pending_seen + counted)
        self._pending_slow = np.where(self.active, 0.0, self._pending_slow + (counted & slow))
        over = counted & (self.evidence <= 0)
        self._seen = self._seen * np.where(counted, DECAY, 1.0) + np.where(over, self._pending_seen, 0.0)
        self._slow = self._slow * np.where(counted, DECAY, 1.0) + np.where(over, self._pending_slow, 0.0)
        self._pending_seen[over] = 0.0
        self._pending_slow[over] = 0.0
