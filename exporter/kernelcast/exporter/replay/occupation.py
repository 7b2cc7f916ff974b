"""State of a GPU at each moment: the union of its activities, as a step function over the recording's time."""

from typing import Final

import numpy as np
import numpy.typing as npt

from kernelcast.exporter.replay.trace import EventSpans, IntArray

COMPUTE: Final = "compute"
COLLECTIVE: Final = "collective"
COPY: Final = "copy"
OVERLAP: Final = "overlap"
IDLE: Final = "idle"
STATES: Final = (COMPUTE, COLLECTIVE, COPY, OVERLAP, IDLE)

BoolArray = npt.NDArray[np.bool_]


class Occupation:
    """Time of one GPU in each state since the recording's start, for any moment of it.

    compute: kernels other than collectives, and nothing else; collective: collectives without compute, copies beside
    them or not; copy: copies and fills alone; overlap: compute beside a collective or a copy; idle: nothing. They add
    up to the time that has passed.
    """

    def __init__(self, kinds: tuple[tuple[str, EventSpans], ...], *, start_ns: int, end_ns: int) -> None:
        """Sweep over all starts and ends once.

        Args:
            kinds: Pairs of `COMPUTE`, `COLLECTIVE` or `COPY` and what of that kind ran on this GPU.
            start_ns: The recording's start.
            end_ns: The recording's end.
        """
        self._start_ns = start_ns
        self._end_ns = end_ns
        edges = [spans.start_ns for _, spans in kinds] + [spans.end_ns for _, spans in kinds]
        times = np.unique(np.concatenate([*edges, np.array([start_ns, end_ns], dtype=np.int64)]))
        busy = {kind: np.zeros(len(times), dtype=np.int64) for kind in (COMPUTE, COLLECTIVE, COPY)}
        for kind, spans in kinds:
            np.add.at(busy[kind], np.searchsorted(times, spans.start_ns), 1)
            np.subtract.at(busy[kind], np.searchsorted(times, spans.end_ns), 1)
        state = _states(*(np.cumsum(busy[kind]) > 0 for kind in (COMPUTE, COLLECTIVE, COPY)))
        self._times = times
        self._state = state
        lengths = np.diff(times)
        self._totals = np.zeros((len(STATES), len(times)), dtype=np.int64)
        for number in range(len(STATES)):
            np.cumsum(np.where(state[:-1] == number, lengths, 0), out=self._totals[number, 1:])

    def until(self, time_ns: int) -> tuple[tuple[str, int], ...]:
        """Nanoseconds in each state from the recording's start to a moment of it; they never fall as it moves on."""
        moment = min(max(time_ns, self._start_ns), self._end_ns)
        position = int(np.searchsorted(self._times, moment, side="right")) - 1
        totals = self._totals[:, position].copy()
        if moment > self._times[position]:
            totals[self._state[position]] += moment - self._times[position]
        return tuple((state, int(total)) for state, total in zip(STATES, totals, strict=True))


def _states(compute: BoolArray, collective: BoolArray, copy: BoolArray) -> IntArray:
    """Positions in `STATES`, one for each stretch between two edges."""
    number = STATES.index
    beside = collective | copy
    choices = [
        (compute & beside, number(OVERLAP)),
        (compute, number(COMPUTE)),
        (collective, number(COLLECTIVE)),
        (copy, number(COPY)),
    ]
    chosen = np.select([mask for mask, _ in choices], [state for _, state in choices], default=number(IDLE))
    return chosen.astype(np.int64)
