"""Changes that programs report: code versions, values of tunables, and trials of hints.

`Engine.run_cycle` collects them for each cycle. `Regimes` begins a regime of the kernels that changed. Blocks of a
trial, in which a kernel ran with two values in turn, count neither for a baseline nor as a slowdown.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.series.attributes import NONE, SeriesAttributes
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.tuning.runs import ProgramRun, RunKey
from kernelcast.predictor.tuning.trials import TrialTime
from kernelcast.predictor.tuning.tunables import names_kernel
from kernelcast.wire.identity import Versions


@dataclass(frozen=True, slots=True)
class ProgramChanges:
    """Changes since the last cycle, with the programs that report their version, and trials.

    Attributes:
        redeployed: Programs that run on other versions now, by GPU, each with the versions before.
        versioned: Programs that report their code version.
        retuned: Program and kernels of tunables with a new value.
        trials: Trials of the time that the blocks cover.
        runs: Versions and tunables by program and GPU.
        versions: Versions that each program runs now.
        accepted: Programs of which a person accepted that a deploy made them slower, and when, Unix nanoseconds.
    """

    redeployed: Mapping[RunKey, Versions] = field(default_factory=dict)
    versioned: Iterable[str] = ()
    retuned: Iterable[tuple[str, str]] = ()
    trials: Sequence[TrialTime] = ()
    runs: Mapping[RunKey, ProgramRun] = field(default_factory=dict)
    versions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)

    def with_earlier(self, earlier: "ProgramChanges") -> "ProgramChanges":
        """Add the deploys and new values of an earlier cycle, which failed before it used them."""
        redeployed = {**self.redeployed, **earlier.redeployed}
        return replace(self, redeployed=redeployed, retuned={*self.retuned, *earlier.retuned})


class TrialBlocks:
    """Blocks in which rows were in a trial; `Regimes` replaces them in each cycle, on the thread that runs cycles."""

    def __init__(self, block_ns: int) -> None:
        self._block_ns = block_ns
        self._spans: dict[int, list[tuple[int, int]]] = {}

    def update(self, trials: Iterable[TrialTime], rows: Ints, known: SeriesAttributes, windows: Windows) -> None:
        """Find the rows of the kernels of each trial; call it under the lock of the windows."""
        spans: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for trial in trials:
            span = trial.begin_ns // self._block_ns, trial.end_ns // self._block_ns
            for row in kernels_of(trial.program, trial.kernel, rows, known, windows):
                spans[row].append(span)
        self._spans = dict(spans)

    def masked(self, rows: Ints, newest: int, *panels: Floats) -> Sequence[Floats]:
        """Panels of blocks up to a newest one, with NaN for the blocks of trials.

        Args:
            rows: Shape (n,).
            newest: Number of the last block.
            panels: Each of shape (n, b).
        """
        in_trial = self._places_in_trials(rows)
        if not in_trial:
            return panels
        masked_panels = [panel.copy() for panel in panels]
        for place in in_trial:
            for begin, end in self._spans[int(rows[place])]:
                for panel in masked_panels:
                    oldest = newest - panel.shape[1] + 1
                    panel[place, max(begin - oldest, 0) : max(end - oldest + 1, 0)] = np.nan
        return masked_panels

    def within(self, rows: Ints, newest_ns: Ints) -> Bools:
        """Whether the block of time up to an instant of each row reaches into a trial, shape (n,)."""
        within_trial = np.zeros(len(rows), np.bool_)
        for place in self._places_in_trials(rows):
            block = int(newest_ns[place]) // self._block_ns
            within_trial[place] = any(begin <= block <= end + 1 for begin, end in self._spans[int(rows[place])])
        return within_trial

    def _places_in_trials(self, rows: Ints) -> list[int]:
        """Places of the rows that were in a trial."""
        return np.flatnonzero(np.isin(rows, list(self._spans))).tolist() if self._spans else []


def kernels_of(program: str, named: str, rows: Ints, known: SeriesAttributes, windows: Windows) -> list[int]:
    """Rows of the named kernels of a program, or of all its kernels; call it under the lock of the windows."""
    number = known.program_number(program)
    if number == NONE:
        return []
    kernels = []
    for row in rows[known.kernel[rows] & (known.program[rows] == number)].tolist():
        subject = windows.subject(row)
        if subject is not None and (not named or names_kernel(named, subject.label("kernel"))):
            kernels.append(row)
    return kernels


def kernels_by_former(
    redeployed: Mapping[RunKey, Versions], rows: Ints, known: SeriesAttributes, windows: Windows
) -> Mapping[Versions, list[int]]:
    """Rows of kernels that run on other versions now, by those before; call it under the lock of the windows."""
    by_former: defaultdict[Versions, list[int]] = defaultdict(list)
    for program in dict.fromkeys(program for program, _ in redeployed):
        for row in kernels_of(program, "", rows, known, windows):
            subject = windows.subject(row)
            former = redeployed.get((program, subject.device)) if subject is not None else None
            if former is not None:
                by_former[former].append(row)
    return by_former
