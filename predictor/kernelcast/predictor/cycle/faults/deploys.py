"""Kernels that a deploy made slower: a ticket until it is accepted or undone, or until their program has ended.

`Regimes` reports deploys (`deployed`), `Publication` asks for the candidate findings in each cycle (`run`).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import astuple, replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints, extended
from kernelcast.predictor.causes.find import FeatureColumn, FeatureRows, find
from kernelcast.predictor.causes.observed import usual_low
from kernelcast.predictor.cycle.candidate_findings import observed_candidate
from kernelcast.predictor.cycle.detector_state import DetectorState
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.program_changes import ProgramChanges
from kernelcast.predictor.passage.baseline import OPENING_BLOCKS
from kernelcast.predictor.passage.series import DAY_BLOCKS
from kernelcast.predictor.robust import row_medians
from kernelcast.predictor.series.saved.parts import Array
from kernelcast.predictor.series.saved.rows import RowColumn, StateTable
from kernelcast.predictor.series.subjects import DURATION
from kernelcast.predictor.series.windows import EMPTY
from kernelcast.predictor.tuning.runs import ProgramRun, RunKey, changes
from kernelcast.wire.catalogue.cause_rules import RULES
from kernelcast.wire.catalogue.features import Feature
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import EndReason, Finding
from kernelcast.wire.identity import Versions

LEAST_BLOCKS: Final = 3
"""Blocks after the first minutes of a new version that a comparison needs."""
RECENT_BLOCKS: Final = 12
"""Blocks, an hour, whose median is the present duration of a kernel that is slower."""
BACK_RATIO: Final = 1.05
"""A kernel is as fast as before once that median is below this multiple of the duration before the deploy."""
UNKNOWN: Final = 0
"""Number of versions that are not known."""
_RULE: Final = next(rule for rule in RULES if rule.result is Cause.DEPLOY)
_SLOWER: Final = _RULE.conditions[0].limit
_EVIDENCE_RULE: Final = replace(_RULE, conditions=(replace(_RULE.conditions[0], limit=0.0),))


class Deploys:
    """Usual durations before a deploy, and the kernels that are slower since. Arrays are indexed by the windows' row.

    Only the thread that runs cycles uses it; columns are saved and restored under the lock.

    A deploy is remembered for a day, and for longer where it made the kernel slower. Further deploys do not replace it
    then: the reference stays the last duration that was accepted.

    Attributes:
        over: Programs whose last slower kernel went in the last cycle, with the reason.
    """

    def __init__(self, source: PanelSource, state: DetectorState) -> None:
        self._source = source
        self._state = state
        self._generation: Ints = np.zeros(0, np.int64)
        self._since: Ints = np.zeros(0, np.int64)  # last block with values of the former versions; EMPTY: no deploy
        self._former: Ints = np.zeros(0, np.int64)  # number of the former versions, a key of `_versions`
        self._reference: Floats = np.zeros(0)  # seconds, the usual duration before the deploy
        self._value: Floats = np.zeros(0)  # seconds, the present duration of a slower kernel; NaN for others
        self._versions: dict[int, Versions] = {}
        self._block: int | None = None
        self._candidates: dict[int, Finding] = {}
        self.over: dict[str, EndReason] = {}

    @property
    def columns(self) -> tuple[RowColumn, ...]:
        """Saved columns of each series: the deploy's block, the durations before and since, the versions' number."""
        return (
            RowColumn("deploy", self._saved, self._restore),
            RowColumn("deploy_former", lambda rows: self._values_of(self._former, rows, UNKNOWN), self._restore_former),
        )

    @property
    def table(self) -> StateTable:
        """Saved versions before the deploys, as JSON."""
        return StateTable("deploy_versions", self._saved_versions, self._restore_versions)

    def deployed(self, rows: Ints, block: int, former: Versions) -> None:
        """Remember the usual durations before a deploy; call it before the regime of the new versions begins.

        Args:
            rows: Shape (n,), kernels of the program.
            block: The last block with values of the versions before.
            former: The versions before.
        """
        self._sync(rows)
        rows = rows[np.isnan(self._value[rows])]
        # Deploys that follow too soon to be compared are one.
        again = np.isfinite(self._reference[rows]) & (block - self._since[rows] < OPENING_BLOCKS + LEAST_BLOCKS)
        self._since[rows[again]] = block
        rows = rows[~again]
        if not len(rows):
            return
        self._versions = {**self._used_versions(), version_number(former): former}
        values = self._source.histories.blocks(rows, block)[1][:, -DAY_BLOCKS:]
        learnt = self._state.baseline[rows]
        self._reference[rows] = np.where(np.isfinite(learnt), learnt, usual_low(values))
        self._since[rows], self._former[rows] = block, version_number(former)

    def run(self, live: Ints, newest: Ints, changes: ProgramChanges) -> list[Finding]:
        """Compare kernels with the time before the last deploy, once per block.

        Args:
            live: Shape (n,), rows that report.
            newest: Shape (n,), newest interval of each.
            changes: What programs run, and which deploys were accepted.

        Returns:
            A ticket for each kernel that is slower, also while it does not report.
        """
        reasons: dict[str, EndReason] = {}
        self._forget_gone(reasons)
        self._describe(changes.runs)
        self._forget_accepted(changes.accepted, reasons)
        pending = np.isin(live, np.flatnonzero(self._since != EMPTY))
        block = self._source.common_block(newest[pending]) if pending.any() else None
        if block is not None and block != self._block:
            self._block = block
            self._compare(live[pending], block)
            self._forget_undone(live[pending], changes.runs, reasons)
            self._candidates.clear()
        self._describe(changes.runs)
        named = {_program(candidate) for candidate in self._candidates.values()}
        self.over = {program: reason for program, reason in reasons.items() if program not in named}
        return list(self._candidates.values())

    def _compare(self, rows: Ints, block: int) -> None:
        """Set the present duration of kernels that are slower; forget deploys that made none slower within a day."""
        values = self._source.trials.masked(rows, block, self._source.histories.blocks(rows, block)[1])[0]
        numbers = block + 1 - np.arange(values.shape[1], 0, -1)
        after = np.where(numbers > self._since[rows, None] + OPENING_BLOCKS, values, np.nan)
        slower = np.isfinite(self._value[rows])
        present = np.where(slower, _median(after[:, -RECENT_BLOCKS:]), _median(after[:, -DAY_BLOCKS:]))
        slow = slower | (present >= _SLOWER * self._reference[rows])
        self._value[rows] = np.where(slow & np.isfinite(present), present, self._value[rows])
        self._clear(rows[~slow & (block - self._since[rows] >= DAY_BLOCKS)])

    def _forget_undone(self, rows: Ints, runs: Mapping[RunKey, ProgramRun], reasons: dict[str, EndReason]) -> None:
        """Forget kernels that are as fast as before, or whose program runs the former version again."""
        undone = self._value[rows] < BACK_RATIO * self._reference[rows]
        slower = np.isfinite(self._value[rows])
        for row, is_undone in zip(rows[slower].tolist(), undone[slower].tolist(), strict=True):
            run = self._run_of(row, runs)
            if is_undone or (run is not None and self._returned(row, run.versions)):
                self._forget(row, EndReason.UNDONE, reasons)

    def _returned(self, row: int, now: Versions) -> bool:
        """Whether a program runs on its former versions again, as far as they are known."""
        number = int(self._former[row])
        former = self._versions.get(number)
        return former not in (None, Versions()) and former.code == now.code and not changes(former, now)

    def _forget_accepted(self, accepted: Mapping[str, int], reasons: dict[str, EndReason]) -> None:
        known = self._source.attributes
        for program, time_ns in accepted.items():
            number = known.program_number(program)
            for row in np.flatnonzero(self._since != EMPTY).tolist():
                if known.program[row] == number and self._since[row] * self._source.histories.block_ns <= time_ns:
                    self._forget(row, EndReason.ACCEPTED, reasons)

    def _forget_gone(self, reasons: dict[str, EndReason]) -> None:
        """Forget series that the windows have dropped."""
        rows, windows = np.flatnonzero(self._since != EMPTY), self._source.windows
        with self._source.lock:
            gone = (windows.generation[rows] != self._generation[rows]) | (windows.owner[rows] < 0)
        for row in rows[gone].tolist():
            self._forget(row, EndReason.PROGRAM_ENDED, reasons)

    def _forget(self, row: int, reason: EndReason, reasons: dict[str, EndReason]) -> None:
        candidate = self._candidates.pop(row, None)
        if candidate is not None:
            reasons[_program(candidate)] = reason
        self._clear(np.array([row]))

    def _describe(self, runs: Mapping[RunKey, ProgramRun]) -> None:
        """Make the candidates of the slower kernels, where some are missing: after a new block or a restart."""
        rows = np.flatnonzero((self._since != EMPTY) & np.isfinite(self._value))
        if len(rows) == len(self._candidates):
            return
        windows, block_ns = self._source.windows, self._source.histories.block_ns
        with self._source.lock:
            subjects = [windows.subject(row) for row in rows.tolist()]
            end_ns = ((windows.newest[rows] + 1) * windows.interval_ns).tolist()
        labels = [() if subject is None else subject.without_variant.labels for subject in subjects]
        value, reference = self._value[rows], self._reference[rows]
        shown = FeatureRows({Feature.DEPLOY_RATIO: FeatureColumn(value / reference, value, reference)}, labels, end_ns)
        self._candidates = {}
        for place, (row, row_causes) in enumerate(zip(rows.tolist(), find(shown, [_EVIDENCE_RULE]), strict=True)):
            run = self._run_of(row, runs)
            now = run.versions if run is not None else Versions()
            changed = changes(self._versions.get(int(self._former[row]), Versions()), now)
            for cause in row_causes.causes:
                begin_ns = int(self._since[row] + 1) * block_ns
                facts = tuple(
                    replace(fact, begin_ns=begin_ns, code_version=now.code, changes=changed) for fact in cause.evidence
                )
                own = replace(cause, evidence=facts)
                self._candidates[row] = observed_candidate(own, labels[place], end_ns[place], DURATION)

    def _run_of(self, row: int, runs: Mapping[RunKey, ProgramRun]) -> ProgramRun | None:
        with self._source.lock:
            subject = self._source.windows.subject(row)
        return runs.get((subject.program, subject.device)) if subject is not None else None

    def _sync(self, rows: Ints) -> None:
        """Make room for rows, and forget what other series left in them."""
        size = int(rows.max(initial=-1)) + 1
        self._generation, self._since = extended(self._generation, size, 0), extended(self._since, size, EMPTY)
        self._former = extended(self._former, size, UNKNOWN)
        self._reference, self._value = (extended(old, size, np.nan) for old in (self._reference, self._value))
        generation = self._source.windows.generation[rows]
        self._clear(rows[self._generation[rows] != generation])
        self._generation[rows] = generation

    def _clear(self, rows: Ints) -> None:
        self._since[rows], self._former[rows] = EMPTY, UNKNOWN
        self._reference[rows] = self._value[rows] = np.nan

    def _values_of(self, values: Array, rows: Ints, other: float) -> Array:
        """Values of rows; another one for rows that have no deploy."""
        known = np.full(len(rows), other, values.dtype)
        inside = np.flatnonzero(rows < len(values))
        mine = inside[self._generation[rows[inside]] == self._source.windows.generation[rows[inside]]]
        known[mine] = values[rows[mine]]
        return known

    def _saved(self, rows: Ints) -> Array:
        durations = [self._values_of(values, rows, np.nan) for values in (self._reference, self._value)]
        return np.stack([self._values_of(self._since, rows, EMPTY).astype(np.float64), *durations], axis=1)

    def _restore(self, rows: Ints, saved: Array) -> None:
        self._sync(rows)
        known: Bools = saved[:, 0] > EMPTY / 2
        self._since[rows] = np.where(known, saved[:, 0], EMPTY).astype(np.int64)
        self._reference[rows], self._value[rows] = saved[:, 1], saved[:, 2]

    def _restore_former(self, rows: Ints, saved: Array) -> None:
        self._sync(rows)
        self._former[rows] = saved

    def _used_versions(self) -> dict[int, Versions]:
        used = set(self._former[self._since != EMPTY].tolist())
        return {number: versions for number, versions in self._versions.items() if number in used}

    def _saved_versions(self) -> Array:
        text = json.dumps([astuple(versions) for versions in self._used_versions().values()])
        return np.frombuffer(text.encode(), np.uint8)

    def _restore_versions(self, saved: Array) -> None:
        for fields in json.loads(saved.tobytes()):
            versions = Versions(*fields)
            self._versions[version_number(versions)] = versions


def version_number(versions: Versions) -> int:
    """A number of versions that is the same in each process; `UNKNOWN` for none."""
    text = "\0".join(astuple(versions)).rstrip("\0")
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True) if text else UNKNOWN


def _median(values: Floats) -> Floats:
    """Median of each row with enough values, shape (n,); NaN for others."""
    enough = np.isfinite(values).sum(axis=1) >= LEAST_BLOCKS
    return np.where(enough, row_medians(values), np.nan)


def _program(candidate: Finding) -> str:
    return dict(candidate.labels).get("program", "")
