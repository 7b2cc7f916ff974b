"""Explains one series for `kernelcast explain`: its history and limit, its forecast, the decision, and the reason.

`Engine.explain` calls it on a thread of the web server, between two cycles and under the windows' lock.
"""

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from kernelcast.predictor.cycle.cycle import Cycle
from kernelcast.predictor.cycle.detector_state import DetectorState
from kernelcast.predictor.cycle.predictions import Abstention
from kernelcast.predictor.passage.alert_rule import CLEAR_EVALUATIONS
from kernelcast.predictor.passage.first_passage import QUANTILES
from kernelcast.predictor.passage.run import MIN_BLOCKS
from kernelcast.predictor.passage.season import rhythm
from kernelcast.predictor.scoring.published import duration_label
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.series.windows import EMPTY, Windows
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.wire.errors import ConfigurationError

_REASONS: Final = {
    Abstention.CLOCK_FELL: "the clock of its GPU is or was lower than usual, so that the kernel itself is not slow",
    Abstention.COMPANIONS_LATE: "it has just become slow; the next cycle has the samples of its GPU",
    Abstention.PROGRAM_WIDE: "most kernels of its program changed at once; the next block shows whether it is a deploy",
}
"""Reasons for publishing nothing about a kernel that is slow."""
MAX_SERIES: Final = 20
"""Series that one answer explains at most."""
_SELECTOR: Final = re.compile(r"\s*([A-Za-z_:][\w:]*)\s*(?:\{(.*)\})?\s*", re.DOTALL)
_LABEL: Final = re.compile(r'\s*([A-Za-z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')


def parse(selector: str) -> tuple[str, dict[str, str]]:
    """Parse `metric{label="value",…}`.

    Raises:
        ConfigurationError: It has another form.
    """
    match = _SELECTOR.fullmatch(selector)
    labels: dict[str, str] = {}
    rest = match.group(2) or "" if match is not None else ""
    while match is not None and rest.strip():
        label = _LABEL.match(rest)
        if label is None:
            match = None
            break
        labels[label.group(1)] = re.sub(r"\\(.)", _unescaped, label.group(2), flags=re.DOTALL)
        rest = rest[label.end() :]
    if match is None:
        raise ConfigurationError(
            f'{selector!r} is no series; write METRIC or METRIC{{label="value"}}, as Prometheus shows it'
        )
    return match.group(1), labels


def _unescaped(escape: re.Match[str]) -> str:
    return "\n" if escape.group(1) == "n" else escape.group(1)


def explain(cycle: Cycle, windows: Windows, selector: str) -> list[dict[str, Any]]:
    """Explain the series that a selector matches, `MAX_SERIES` at most; between two cycles, under the windows' lock.

    Raises:
        ConfigurationError: The selector has another form.
    """
    metric, labels = parse(selector)
    return [_explained(cycle, windows, subject, row) for subject, row in _matching(windows, metric, labels)]


def _matching(windows: Windows, metric: str, labels: dict[str, str]) -> Iterator[tuple[Subject, int]]:
    count = 0
    for subject, row in windows.items():
        shown = subject.without_variant
        if shown.metric == metric and all(subject.label(name) == value for name, value in labels.items()):
            yield subject, row
            count += 1
            if count == MAX_SERIES:
                return


def _explained(cycle: Cycle, windows: Windows, subject: Subject, row: int) -> dict[str, Any]:
    explanation: dict[str, Any] = {"metric": subject.without_variant.metric, "labels": dict(subject.labels)}
    if windows.newest[row] == EMPTY:
        return explanation | {"decided": "no value yet"}
    newest_seconds = (int(windows.newest[row]) + 1) * windows.interval_ns / NANOSECONDS_PER_SECOND
    explanation["newest_seconds"] = newest_seconds
    explanation["value"] = _number(float(windows.latest(np.array([row]))[0]))
    if not bool(cycle.detection.state.holds(np.array([row]), windows.generation[[row]])[0]):
        return explanation | {"decided": "not looked at yet; the next cycle does"}
    fleet = {"fleet": cycle.fleet.explain(row)} if subject.is_kernel_time else {}
    return (
        explanation | _knows(cycle, subject, row) | _expects(cycle, row, newest_seconds) | fleet | _decided(cycle, row)
    )


def _knows(cycle: Cycle, subject: Subject, row: int) -> dict[str, Any]:
    state, attributes = cycle.detection.state, cycle.attributes
    meaning = attributes.meanings[attributes.meaning[row]]
    return {
        "cause_of_a_breach": str(meaning.cause),
        "history_blocks": int(state.reach[row]),
        "block_seconds": cycle.block_seconds,
        "season": str(rhythm(cycle.histories.hours(np.array([row])), cycle.detection.day_hours)[0]),
        "baseline": _number(state.baseline[row]),
        "limit": _number(state.limit[row]),
        "limit_from": _source(cycle, subject, row),
        "first_minutes_of_the_process": bool(state.opening[row]),
        "value_over_a_block": _number(state.value[row]),
    }


def _source(cycle: Cycle, subject: Subject, row: int) -> str:
    """Origin of a series' limit."""
    attributes = cycle.attributes
    meaning = attributes.meanings[attributes.meaning[row]]
    if not attributes.judged[row]:
        return "none: nothing is predicted without a limit; set predictor.limits"
    if not math.isnan(attributes.threshold[row]):
        return "settings"
    if attributes.kernel[row]:
        return f"{float(attributes.own_ratio(np.array([row]))[0]):g} times its own baseline"
    if meaning.limit is None:
        return f"{attributes.settings.judge.memory_full_ratio:.4g} times the size of the memory"
    device = subject.label("UUID"), subject.label("GPU_I_ID")
    return cycle.limit_origins.get(device) or meaning.limit.prometheus_name


def _expects(cycle: Cycle, row: int, now_seconds: float) -> dict[str, Any]:
    probability, seconds = cycle.degradations.probability(row), cycle.degradations.seconds(row, now_seconds)
    forecast = cycle.forecast_of(row)
    return {
        "breach_probability": {
            duration_label(each): probability.get(each) for each in cycle.degradations.horizons(row)
        },
        "seconds_to_limit": {f"{one:g}": seconds.get(one) for one in QUANTILES},
        "forecast": {duration_label(each): list(bounds) for each, bounds in cycle.bounds_of(row).items()},
        "expected": list(forecast.expected) if forecast and forecast.expected else None,
    }


def _decided(cycle: Cycle, row: int) -> dict[str, Any]:
    state = cycle.detection.state
    firing = (state.has_passed(row) or bool(state.firing[row])) and cycle.abstention_of(row) is None
    firing &= not cycle.excused(row)
    return {
        "alert": firing,
        "alert_since_seconds": int(state.since_ns[row]) / NANOSECONDS_PER_SECOND if firing else None,
        "evaluations_with_a_high_probability": int(state.high[row]),
        "evaluations_with_a_low_probability": int(state.low[row]),
        "decided": _reason(cycle, row),
    }


def _reason(cycle: Cycle, row: int) -> str:
    state = cycle.detection.state
    if cycle.excused(row):
        return f"abstains ({Abstention.CALENDAR}): predictor.calendar has a period for this series now"
    if not cycle.attributes.judged[row]:
        return "no limit: forecast only"
    abstention = cycle.abstention_of(row)
    if abstention is not None:
        return f"abstains ({abstention}): {_REASONS[abstention]}"
    if state.has_passed(row):
        return "the limit is passed"
    return _reason_before_the_limit(state, row)


def _reason_before_the_limit(state: DetectorState, row: int) -> str:
    if state.wide[row]:
        return f"abstains ({Abstention.WIDE_BASELINE}): its durations vary too much for a usual value"
    if math.isnan(state.limit[row]):
        return "abstains: the limit is not known yet"
    if state.known_blocks[row] < MIN_BLOCKS:
        return (
            f"abstains ({Abstention.UNUSABLE_WINDOW}): {int(state.known_blocks[row])} blocks, {MIN_BLOCKS} are needed"
        )
    if not state.firing[row]:
        return "no breach is probable"
    low = int(state.low[row])
    if not low:
        return "a breach is probable"
    before = "the limit was passed" if state.crossed_ns[row] else "a breach was probable"
    return (
        f"{before}; the alert ends after {CLEAR_EVALUATIONS} evaluations in a row with a low probability, {low} so far"
    )


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
