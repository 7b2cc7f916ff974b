"""Slow workers of the programs that run now: the ranks of each program compared with each other, once per block.

`Publication` runs it in each cycle; `peers.PeerDetector` does the comparison. A kernel does equal work on all ranks
that launch the same kernels on the same model of GPU. Collectives are left out: their duration is a wait for the
slowest rank.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.cycle.candidate_findings import observed_candidate
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.passage.baseline import OPENING_BLOCKS
from kernelcast.predictor.peers import Basis, PeerDetector, PeerGroups, PeerStep, WorkerFinding
from kernelcast.predictor.robust import row_medians
from kernelcast.predictor.series.subjects import DURATION
from kernelcast.wire.catalogue.cause_rules import SLOW_WORKER_PAGE
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingEvidence, Severity
from kernelcast.wire.identity import Labels

FEWEST_WORKERS: Final = 4
"""With fewer, a worker is compared with its own past alone, as the baseline of each of its kernels does already."""
CATCH_UP_BLOCKS: Final = 12
"""Blocks that are compared at most in one cycle, after a start or a gap: an hour."""
CHUNK_ROWS: Final = 2048
"""Rows read at a time: a row has two days of blocks."""
_KEPT_BLOCKS: Final = CATCH_UP_BLOCKS + OPENING_BLOCKS
_WORKER_LABELS: Final = frozenset({*device.DEVICE_LABELS, "program", "rank"})


@dataclass(slots=True, eq=False)
class _Job:
    """One program with the layout of its rows.

    Attributes:
        rows: Shape (n,), rows of its kernels, ascending.
        generation: Shape (n,), of these rows.
        worker: Shape (n,), number of the worker of each row.
        unit: Shape (n,), number of the kernel of each row.
        labels: Of each worker.
        groups: Group of each worker: the same kernels on the same model.
        detector: Compares the workers.
        block: The newest block that was compared; None before the first.
    """

    rows: Ints
    generation: Ints
    worker: Ints
    unit: Ints
    labels: tuple[Labels, ...]
    groups: tuple[int, ...]
    detector: PeerDetector
    block: int | None = None

    def panel(self, values: Floats) -> Floats:
        """Durations of one block by worker and kernel, relative to the median of the workers, in seconds."""
        seconds = np.full((len(self.labels), int(self.unit.max()) + 1), np.nan)
        seconds[self.worker, self.unit] = values
        usual = row_medians(seconds.T)
        known = usual > 0
        relative = np.where(known, seconds / np.where(known, usual, 1.0), np.nan)
        # Each kernel weighs the same, and a worker that lacks one is not faster.
        return relative * float(np.nanmean(usual)) if known.any() else relative


class Stragglers:
    """Slow workers of all programs. Only the thread that runs cycles uses it.

    Attributes:
        jobs: By number of the program.
    """

    def __init__(self, source: PanelSource) -> None:
        self._source = source
        self.jobs: dict[int, _Job] = {}

    def run(self, live: Ints, newest: Ints) -> list[Finding]:
        """Compare the workers of programs with a new block.

        Args:
            live: Shape (n,), rows that report.
            newest: Shape (n,), newest interval of each.

        Returns:
            The candidates that hold now.
        """
        known = self._source.attributes
        kernels = np.flatnonzero(known.kernel[live])
        kernels = kernels[np.argsort(known.program[live[kernels]], kind="stable")]
        programs, first = np.unique(known.program[live[kernels]], return_index=True)
        present: dict[int, _Job] = {}
        for program, places in zip(programs.tolist(), np.split(kernels, first)[1:], strict=True):
            rows = np.sort(live[places])
            job = self._job(self.jobs.get(program), rows)
            if job is not None:
                present[program] = job
                last = self._source.common_block(newest[places])
                self._advance(job, last)
        self.jobs = present
        return [candidate for job in present.values() for candidate in self._candidates(job)]

    def _job(self, before: _Job | None, rows: Ints) -> _Job | None:
        """The layout of a program's rows; the detector goes on while its workers and their kernels are the same."""
        generation = self._source.windows.generation[rows]
        if before is not None and np.array_equal(before.rows, rows) and np.array_equal(before.generation, generation):
            return before
        if len(np.unique(self._source.attributes.device[rows])) < FEWEST_WORKERS:
            return None
        with self._source.lock:
            subjects = [self._source.windows.subject(row) for row in rows.tolist()]
        pairs = [() if subject is None else subject.labels for subject in subjects]
        owners = [tuple(pair for pair in own if pair[0] in _WORKER_LABELS) for own in pairs]
        names = ["|".join(value for name, value in own if name in ("kernel", "variant")) for own in pairs]
        labels = tuple(sorted(set(owners)))
        if len(labels) < FEWEST_WORKERS:
            return None
        kernels: dict[Labels, set[str]] = {}
        for owner, name in zip(owners, names, strict=True):
            kernels.setdefault(owner, set()).add(name)
        signatures = [(dict(own).get("modelName", ""), *sorted(kernels[own])) for own in labels]
        numbers = {signature: number for number, signature in enumerate(dict.fromkeys(signatures))}
        groups = tuple(numbers[signature] for signature in signatures)
        same = before is not None and (before.labels, before.groups) == (labels, groups)
        place = {own: number for number, own in enumerate(labels)}
        unit = np.unique(names, return_inverse=True)[1].astype(np.int64)
        return _Job(
            rows=rows,
            generation=generation,
            worker=np.array([place[owner] for owner in owners], np.int64),
            unit=unit,
            labels=labels,
            groups=groups,
            detector=before.detector if before is not None and same else _detector(groups),
            block=before.block if before is not None else None,
        )

    def _advance(self, job: _Job, last: int) -> None:
        """Compare the workers in each block that has ended since the last comparison."""
        windows = self._source.windows
        window_blocks = max(windows.points // self._source.histories.block_intervals, 1)
        if job.block is not None and last <= job.block - window_blocks:
            # The clocks of the hosts were ahead and have been set back. Windows ignore a smaller step.
            job.detector, job.block = _detector(job.groups), None
        if job.block is not None and last <= job.block:
            return
        median, process = self._blocks(job.rows, last)
        count = CATCH_UP_BLOCKS if job.block is None else min(last - job.block, CATCH_UP_BLOCKS)
        for place in range(_KEPT_BLOCKS - count, _KEPT_BLOCKS):
            # A worker that has just been restarted is not as fast as the others yet.
            values = np.where(process[:, place] == process[:, place - OPENING_BLOCKS], median[:, place], np.nan)
            if np.isfinite(values).any():
                job.detector.observe(PeerStep(last - (_KEPT_BLOCKS - 1 - place), job.panel(values)))
        job.block = last

    def _blocks(self, rows: Ints, last: int) -> tuple[Floats, Ints]:
        """Medians of the blocks that are compared, without those of trials, and the number of the process."""
        source = self._source
        median, process = np.empty((len(rows), _KEPT_BLOCKS)), np.empty((len(rows), _KEPT_BLOCKS), np.int64)
        for begin in range(0, len(rows), CHUNK_ROWS):
            part = slice(begin, begin + CHUNK_ROWS)
            median[part] = source.histories.blocks(rows[part], last)[1][:, -_KEPT_BLOCKS:]
            process[part] = source.histories.processes(rows[part], last)[:, -_KEPT_BLOCKS:]
        (median,) = source.trials.masked(rows, last, median)
        return median, process

    def _candidates(self, job: _Job) -> Iterator[Finding]:
        block_ns = self._source.histories.block_ns
        for finding in job.detector.findings:
            labels = job.labels[finding.worker]
            end_ns = ((job.block or 0) + 1) * block_ns
            yield observed_candidate(
                straggler(finding, labels, finding.since_step * block_ns, end_ns), labels, end_ns, DURATION
            )


def straggler(finding: WorkerFinding, labels: Labels, begin_ns: int, end_ns: int) -> FoundCause:
    """A worker that is slow against its peers, or against its own past where it has too few of them."""
    against = "peers" if finding.basis is Basis.PEERS else "baseline"
    fact = FindingEvidence(DURATION, labels, finding.own_seconds, finding.reference_seconds, against, begin_ns, end_ns)
    severity = Severity.PAGE if finding.ratio >= SLOW_WORKER_PAGE else Severity.TICKET
    return FoundCause(Cause.STRAGGLER, severity, (fact,))


def _detector(groups: tuple[int, ...]) -> PeerDetector:
    return PeerDetector(PeerGroups.of(np.array(groups, np.int64)))
