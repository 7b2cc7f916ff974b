"""Compares the workers of one program step by step: measurements in, findings out.

`cycle.faults.stragglers` has one detector per program, whose steps are blocks; replays give the program's own steps.
A *course* is a series of slow steps of one worker.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from kernelcast.predictor.peers.findings import WorkerFinding
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.panel import PeerStep
from kernelcast.predictor.peers.workers import WorkerRatios, WorkerTest

RATIOS: Final = 64
"""Ratios kept of each course, for their median."""


@dataclass(slots=True)
class _Course:
    """Slow steps of one worker in a row, few exceptions included."""

    since_step: int
    slow_steps: int = 0
    log_ratios: deque[float] = field(default_factory=lambda: deque(maxlen=RATIOS))


class PeerDetector:
    """Finds slow workers; one thread uses it.

    Args:
        groups: The workers by peer group.
    """

    def __init__(self, groups: PeerGroups) -> None:
        self._workers = WorkerTest(groups)
        self._courses: dict[int, _Course] = {}
        self._findings: dict[int, WorkerFinding] = {}

    @property
    def findings(self) -> list[WorkerFinding]:
        """Findings that last, by worker."""
        return [self._findings[worker] for worker in sorted(self._findings)]

    def observe(self, step: PeerStep) -> list[WorkerFinding]:
        """Take in one step.

        Returns:
            Findings that began or ended with it.
        """
        ratios, slow, started, ended = self._workers.update(step)
        suspects: list[int] = np.flatnonzero(self._workers.suspects).tolist()
        for worker in suspects:
            self._follow(worker, step, ratios, slow=bool(slow[worker]))
        changed = [self._findings[worker] for worker in np.flatnonzero(started).tolist()]
        changed += [self._end(worker, step) for worker in np.flatnonzero(ended).tolist()]
        self._courses = {worker: self._courses[worker] for worker in suspects}
        return changed

    def _follow(self, worker: int, step: PeerStep, ratios: WorkerRatios, *, slow: bool) -> None:
        course = self._courses.setdefault(worker, _Course(step.step))
        if slow:
            course.slow_steps += 1
            course.log_ratios.append(float(ratios.log_ratio[worker]))
        if worker in self._findings and slow:
            self._findings[worker] = self._measured(self._findings[worker], course, ratios, step)
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

    def _end(self, worker: int, step: PeerStep) -> WorkerFinding:
        return replace(self._findings.pop(worker), until_step=step.step)
