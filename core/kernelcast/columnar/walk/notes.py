"""Records the byte ranges of points' exemplars, which `Decoder` then copies; points without exemplars cost nothing."""

from kernelcast.columnar.compiled import routine, signed
from kernelcast.columnar.walk.layout import EXEMPLARS, GROW_EXEMPLARS, ODD, OK, VERIFY, WalkState


@routine
def note_exemplar(state: WalkState, histogram: int, row: int, start: int, stop: int) -> int:
    """Note an exemplar field of the point that is being read; those of one point must lie together.

    Args:
        state: The decoder's arrays.
        histogram: 1 for a histogram's point, 0 for a number.
        row: The point's.
        start: Position of the field's tag.
        stop: Position after the field.
    """
    control = state.control
    control[VERIFY] = 1
    noted = control[EXEMPLARS]
    if noted > 0:
        last = state.exemplars[noted - 1]
        if signed(last.row) == row and signed(last.histogram) == histogram:
            if signed(last.stop) != start:
                return ODD
            last.stop = stop
            return OK
    if noted >= len(state.exemplars):
        return GROW_EXEMPLARS
    record = state.exemplars[noted]
    record.start = start
    record.stop = stop
    record.row = row
    record.histogram = histogram
    control[EXEMPLARS] = noted + 1
    return OK
