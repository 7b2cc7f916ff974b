"""Compares the workers of one program step by step: measurements in, findings and the division of work out.

`cycle.causes.stragglers` has one detector per program, whose steps are blocks; replays give the program's own steps.
A *course* is a series of slow steps of one worker, a *stage* a group of workers with the same part of a pipeline.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.peers.division import WorkHistory
from kernelcast.predictor.peers.findings import Division, LinkFinding, Shares, WorkerFinding
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.links import LinkTest
from kernelcast.predictor.peers.panel import Links, PeerStep
from kernelcast.predictor.peers.workers import WorkerRatios, WorkerTest

SMALLEST_SHARE: Final = 0.05
"""An uneven division is reported if it prolongs a step by 5 %."""
RATIOS: Final = 64
"""Ratios kept of each course, for their median."""


@dataclass(slots=True)
class _Course:
    """Slow steps of one worker in a row, few exceptions included."""

    since_step: int
    steps: int = 0
    slow_steps: int = 0
    log_ratios: deque[float] = field(default_factory=lambda: deque(maxlen=RATIOS))


class PeerDetector:
    """Finds slow workers and slow links, and estimates how unevenly the work is divided; one thread uses it.

    Args:
        groups: The workers by peer group and replica.
        links: The links between them.
    """

    def __init__(self, groups: PeerGroups, links: Links | None = None) -> None:
        self._workers = WorkerTest(groups)
        self._links = LinkTest(links or Links.none())
        self._history = WorkHistory(groups)
        self._courses: dict[int, _Course] = {}
        self._findings: dict[int, WorkerFinding] = {}
        self._link_share = 0.0
        self.slow_links: list[LinkFinding] = []

    @property
    def findings(self) -> list[WorkerFinding]:
        """Findings that last, by worker."""
        return [self._findings[worker] for worker in sorted(self._findings)]

    def observe(self, step: PeerStep) -> list[WorkerFinding]:
        """Take in one step.

        Returns:
            Findings that began or ended with it.
        """
        self._history.add(step)
        ratios, slow, started, ended = self._workers.update(step)
        suspects: list[int] = np.flatnonzero(self._workers.suspects).tolist()
        for worker in suspects:
            self._follow(worker, step, ratios, slow=bool(slow[worker]))
        changed = [self._start(worker) for worker in np.flatnonzero(started).tolist()]
        changed += [self._end(worker, step) for worker in np.flatnonzero(ended).tolist()]
        self._courses = {worker: self._courses[worker] for worker in suspects}
        self._observe_links(step, ratios)
        return changed

    def shares(self) -> Shares:
        """Estimated prolongation of a step by each reason."""
        return Shares(self._history.stage_share(), self._history.sequence_share(), self._link_share)

    def division(self) -> Division:
        """The reason with the greatest share; a slow link counts however small its share."""
        shares = self.shares()
        found = {
            Division.STAGE: shares.stage if shares.stage >= SMALLEST_SHARE else 0.0,
            Division.SEQUENCE: shares.sequence if shares.sequence >= SMALLEST_SHARE else 0.0,
            Division.LINK: shares.link,
        }
        greatest = max(found, key=lambda reason: found[reason])
        return greatest if found[greatest] > 0 else Division.NONE

    def _follow(self, worker: int, step: PeerStep, ratios: WorkerRatios, *, slow: bool) -> None:
        course = self._courses.setdefault(worker, _Course(step.step))
        course.steps += 1
        if slow:
            course.slow_steps += 1
            course.log_ratios.append(float(ratios.log_ratio[worker]))
        if worker in self._findings and slow:
            self._findings[worker] = self._measured(self._findings[worker], course, ratios, step)
        if worker in self._findings:
            self._history.forget(worker, 1)
        elif slow and self._workers.persistence.active[worker]:
            self._findings[worker] = self._measured(self._new(worker, course, step), course, ratios, step)

    def _new(self, worker: int, course: _Course, step: PeerStep) -> WorkerFinding:
        basis = self._workers.basis(worker)
        return WorkerFinding(worker, basis, 1.0, course.since_step, step.step, None, 0, 0.0, 0.0, 0)

    @staticmethod
    def _measured(finding: WorkerFinding, course: _Course, ratios: WorkerRatios, step: PeerStep) -> WorkerFinding:
        worker = finding.worker
        return replace(
            finding,
            ratio=float(np.exp(np.median(course.log_ratios))),
            slow_steps=course.slow_steps,
            own_seconds=float(step.mean_seconds[worker]),
            reference_seconds=float(ratios.reference_seconds[worker]),
            peers=int(ratios.peers[worker]),
        )

    def _start(self, worker: int) -> WorkerFinding:
        self._history.forget(worker, self._courses[worker].steps)
        return self._findings[worker]

    def _end(self, worker: int, step: PeerStep) -> WorkerFinding:
        return replace(self._findings.pop(worker), until_step=step.step)

    def _observe_links(self, step: PeerStep, ratios: WorkerRatios) -> None:
        cost, found = self._links.update(step, self._workers.suspects | ratios.slower)
        self.slow_links += found
        self._link_share = max(self._link_share, _total(cost))


def _total(cost: Floats) -> float:
    return float(cost.max(initial=0.0))
