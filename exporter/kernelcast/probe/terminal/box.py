"""The summary as a box of at most ten lines and 80 columns, fewer on a narrower terminal; ASCII only."""

from textwrap import wrap
from typing import Final

from kernelcast.probe.terminal.summary import RunSummary
from kernelcast.wire.frames import COST_BOUNDS
from kernelcast.wire.verdict import phase_label

WIDTH: Final = 80
LEAST_WIDTH: Final = 40
"""A narrower terminal breaks the lines itself."""
_FRAME: Final = 4
"""Columns of the frame and the spaces within it."""
_NAME: Final = 46
"""Characters of the name of a region, and of a kernel in a box of 80 columns."""
_FIGURES: Final = WIDTH - _FRAME - _NAME
"""Columns of the figures beside the name of a kernel."""
_TUNED_NAME: Final = 24
"""Characters of the name of a space; the name of a decorated function with a shape is longer."""
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"
TUNED_LINES: Final = 3
"""Largest number of lines about spaces and tunables."""
LINES: Final = 10
"""Largest number of lines of the box."""
FIRST_STEP_RATIO: Final = 0.05
"""Share of the steps' time above which the box names the first step."""


def box(run: RunSummary, columns: int | None = None) -> list[str]:
    """Return the lines of the box.

    Args:
        run: What was measured.
        columns: Width of the terminal; None where that is not known.
    """
    inside = max(LEAST_WIDTH, min(columns or WIDTH, WIDTH)) - _FRAME
    title, rates = _title(run, inside)
    memory, verdict = (wrap(text, inside) for text in (f"memory: {_memory(run)}{_cost(run)}", run.verdict))
    fixed = [*_wrapped_list("rate", rates, inside, 1), *_regions(run, inside), *memory, *_tuned(run, inside)]
    # The frame takes two lines; kernels leave one for the phases.
    rest = [*fixed, *_kernels(run, inside)[: max(0, LINES - 3 - len(fixed) - len(verdict))], *verdict]
    lines = [*_phases(run, inside, LINES - 2 - len(rest)), *rest]
    return [
        f"+-{_cut(title, inside):-<{inside}}-+",
        *(f"| {_cut(_ascii(line), inside):<{inside}} |" for line in lines),
        f"+-{'':-<{inside}}-+",
    ]


def _rank(run: RunSummary) -> str:
    if not run.rank:
        return ""
    return f" rank {run.rank} of {run.ranks}" if run.ranks else f" rank {run.rank}"


def _title(run: RunSummary, inside: int) -> tuple[str, list[str]]:
    """Return the title, and the rates that it has no room for."""
    program = _cut(_ascii(f"{run.program}{_rank(run)}"), 32)
    title, rates = f" kernelcast: {program}: {_counted(run.steps, 'step')}", _rates(run)
    while rates and len(f"{title}, {rates[0]} ") <= inside:
        title += f", {rates.pop(0)}"
    return f"{title} ", rates


def _rates(run: RunSummary) -> list[str]:
    if run.steps_per_second is None:
        return []
    items = [f"{_number(run.items_per_second)} items/s"] if run.items_per_second else []
    return [f"{_number(run.steps_per_second)} steps/s", *items]


def _phases(run: RunSummary, inside: int, most: int) -> list[str]:
    """Return the share of each phase in the steps' time, on at most `most` lines."""
    total_seconds = sum(run.phase_seconds.values())
    order = sorted(run.phase_seconds.items(), key=lambda part: (part[0] == "other", -part[1]))
    shares = ((name, seconds / total_seconds * 100) for name, seconds in order if total_seconds)
    names = (f"{phase_label(name, run.phase_seconds)} {share:.0f} %" for name, share in shares if share >= 0.5)
    return _wrapped_list("time", [*names, *_first_step(run)], inside, most)


def _first_step(run: RunSummary) -> list[str]:
    """Return the time of the first step, where rates and phases leave out a notable part of the run with it."""
    first_seconds = run.first_step_seconds or 0.0
    notable = first_seconds > FIRST_STEP_RATIO * (first_seconds + run.step_seconds)
    return [f"first step {_duration(first_seconds)}, not counted"] if notable else []


def _regions(run: RunSummary, inside: int) -> list[str]:
    """Return the time in each region on one line. It includes the first step, which phases leave out."""
    order = sorted(run.region_seconds.items(), key=lambda region: -region[1])
    regions = [f"{_cut(_ascii(name), _NAME)} {_duration(seconds)}" for name, seconds in order]
    return _wrapped_list("regions", regions, inside, 1)


def _wrapped_list(title: str, items: list[str], inside: int, most: int) -> list[str]:
    """Return a list on at most `most` lines, broken between items; dots stand for items without room."""
    if not items or most < 1:
        return []
    text = f"{title}: " + ", ".join(item.replace(" ", _NO_BREAK) for item in items)
    lines = [line.replace(_NO_BREAK, " ") for line in wrap(text, inside, subsequent_indent=" " * (len(title) + 2))]
    if len(lines) <= most:
        return lines
    return [*lines[: most - 1], f"{lines[most - 1][: inside - 3].rpartition(',')[0]}, .."]


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{_number(seconds)} s"
    return f"{_number(seconds / 1e-3)} ms" if seconds >= 1e-3 else f"{_number(seconds / 1e-6)} us"


def _memory(run: RunSummary) -> str:
    peaks = run.gpu_memory_peak_bytes
    if peaks:
        most = max(peaks.values())
        return f"at most {_size(most)} of {'the GPU' if len(peaks) == 1 else 'one GPU'} in PyTorch"
    if run.process_memory_peak_bytes is None:
        return "not known"
    return f"at most {_size(run.process_memory_peak_bytes)} of the process"


def _cost(run: RunSummary) -> str:
    bounds = run.cupti_step_time_ratio
    if len(bounds) == len(COST_BOUNDS):
        return f"; CUPTI costs {max(0.0, bounds[1] - 1) * 100:.0f} % of a step"
    return f"; measuring took {run.measuring_ratio * 100:.2g} %"


def _tuned(run: RunSummary, inside: int) -> list[str]:
    """Return a line for each result. A single result may take more lines, because a user copies its values."""
    lines = [f"tuned: {_cut(_ascii(result.name), _TUNED_NAME)}: {result.words()}" for result in run.tuning]
    if len(lines) == 1:
        return wrap(lines[0], inside, subsequent_indent="       ")[:TUNED_LINES]
    if len(lines) > TUNED_LINES:
        lines[TUNED_LINES - 1 :] = [f"tuned: {len(lines) - TUNED_LINES + 1} more; --report FILE.json has all"]
    return lines


def _kernels(run: RunSummary, inside: int) -> list[str]:
    room = max(8, inside - _FIGURES)
    return [
        f"{_cut(_ascii(hot.kernel.rpartition('#')[0] or hot.kernel), room):<{room}} {hot.gpu_time_ratio * 100:3.0f} %"
        f" {hot.gpu_seconds / hot.launches * 1e6:8.1f} us x {hot.launches}"
        for hot in run.hottest_kernels
        if hot.launches
    ]


def _ascii(text: str) -> str:
    return text.encode("ascii", "replace").decode()


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 2]}.."


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + "s" * (number != 1)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.0f} MiB"
