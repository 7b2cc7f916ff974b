"""Kernels of one program compared with each other: a change of most of them at once has one cause.

Pure functions for `Detection` and `Explanations`. If most kernels of a program step to another duration at once, the
program was deployed again, unless the clock of its GPU fell or another program runs there.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.robust import row_quantiles
from kernelcast.predictor.series.attributes import SeriesAttributes
from kernelcast.predictor.series.subjects import DeviceKey
from kernelcast.wire.catalogue.devices import device

CLOCK: Final = device.SM_CLOCK.prometheus_name
MANY_KERNELS: Final = 3
"""Kernels that a program must have; of one or two, "most" says nothing."""
WIDE_SHARE: Final = 0.5
"""Share of a program's kernels that must have changed."""
RECENT_BLOCKS: Final = 2
"""Newest blocks whose median is a kernel's present duration."""
CHANGED_RATIO: Final = 0.1
"""Distance from the usual duration, relative to it, from which a kernel has changed."""
_NEAR_RATIO: Final = 0.05
"""Distance below which it had its usual duration just before the step."""
_CLOCK_FALL_RATIO: Final = 0.03
"""Fall of a clock below its usual value that counts; clocks vary by a per cent or two."""
_USUAL_CLOCK: Final = 0.9
"""Quantile of the clock's blocks that counts as usual: a GPU that idles now and then still has it."""


def moved(level: Floats, baseline: Floats) -> Bools:
    """Whether each kernel is away from its usual duration, shape (n,)."""
    has_moved: Bools = np.abs(level / baseline - 1.0) > CHANGED_RATIO
    return has_moved


def moved_as_a_whole(program: Ints, changed: Bools, judged: Bools) -> Bools:
    """Kernels of programs that have several, most of which changed, shape (n,).

    Args:
        program: Shape (n,), number of the program.
        changed: Shape (n,), whether the kernel is away from its usual duration.
        judged: Shape (n,), whether the row is a kernel with a usual duration.
    """
    size = int(program.max(initial=0)) + 1
    kernels = np.bincount(program[judged], minlength=size)
    away = np.bincount(program[judged & changed], minlength=size)
    whole = (kernels >= MANY_KERNELS) & (away >= WIDE_SHARE * kernels)
    moved_with_program: Bools = judged & whole[program]
    return moved_with_program


def shared_devices(attributes: SeriesAttributes, rows: Ints) -> Bools:
    """Whether several programs among these rows have kernels on each GPU, by the GPU's number."""
    mine = rows[attributes.kernel[rows]]
    pairs = np.unique(np.stack([attributes.device[mine], attributes.program[mine]], axis=1), axis=0)
    size = int(attributes.device[rows].max(initial=0)) + 1
    is_shared: Bools = np.bincount(pairs[:, 0], minlength=size) > 1
    return is_shared


def alone_on_devices(attributes: SeriesAttributes, rows: Ints) -> dict[DeviceKey, str]:
    """The program of each GPU on which only one program has series among these rows."""
    mine = rows[attributes.program[rows] != attributes.program_number("")]
    pairs = np.unique(np.stack([attributes.device[mine], attributes.program[mine]], axis=1), axis=0)
    _, first, count = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    devices, programs = attributes.devices, attributes.programs
    return {devices[device]: programs[program] for device, program in pairs[first[count == 1]].tolist()}


def run_length(median: Floats, baseline: Floats) -> Ints:
    """Blocks up to the newest one in which each kernel was away from its usual duration; gaps count with the run."""
    away = ~(np.abs(median / baseline[:, None] - 1.0) <= CHANGED_RATIO)
    usual = ~away[:, ::-1]
    length: Ints = np.where(usual.any(axis=1), np.argmax(usual, axis=1), median.shape[1]).astype(np.int64)
    return length


def stepped(median: Floats, baseline: Floats) -> Bools:
    """Whether each kernel came to its new duration within two blocks, shape (n,)."""
    length = run_length(median, baseline)
    before = median.shape[1] - length - 2
    rows = np.arange(len(median))
    near = np.abs(median[rows, np.maximum(before, 0)] / baseline - 1.0) < _NEAR_RATIO
    has_stepped: Bools = (length > 0) & (before >= 0) & near
    return has_stepped


def clock_fell(blocks: Floats, latest: Floats) -> Bools:
    """Whether clocks are lower than usual, shape (n,).

    Args:
        blocks: Shape (n, b), NaN where missing.
        latest: Shape (n,), newest values or recent means.
    """
    fell: Bools = latest < row_quantiles(blocks, _USUAL_CLOCK) * (1.0 - _CLOCK_FALL_RATIO)
    return fell
