"""What trials and searches have come to, by tunable and space: for the box at the program's end, and for the report."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal

from kernelcast.probe.outcomes import TrialResult
from kernelcast.probe.tuned.shapes import SearchedShapes, ShapeProgress

EARLIER: Final = "kept by an earlier run"
NO_HINTS: Final = "no hint comes without Kafka"
"""Reason for which a tunable keeps its value beside an exporter that the program has started."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of a space, of one shape of a decorated function, or of a tunable.

    Attributes:
        name: Its name, with function and shape.
        state: `kept`: a value that trials have proved is in force; `searching`: there is no decision yet; `unchanged`:
            none was worth it, and the program's own is in force.
        value: The value in force.
        time_ratio: Time with a kept value over that with the program's own; None where this run has not measured it.
        tried, planned: Configurations that the open search has measured, and those that it will; None without one.
        reason: Reason of the decision, or for which nothing is tried.
        own: The program's own value, where another one is kept; empty where it is not known.
        is_earlier: Whether an earlier run has kept the value.
    """

    name: str
    state: Literal["kept", "searching", "unchanged"]
    value: str
    time_ratio: float | None = None
    tried: int | None = None
    planned: int | None = None
    reason: str = ""
    own: str = ""
    is_earlier: bool = False

    def words(self) -> str:
        """The result for people, the most important first."""
        if self.state == "kept":
            ratio = "" if self.time_ratio is None else f", {self.time_ratio:.2f} of the time"
            return _change(self.own, self.value) + ratio + ("; from an earlier run" if self.is_earlier else "")
        if self.state == "unchanged":
            return f"nothing was worth it; {self.value} stays"
        if self.reason and not self.tried:
            return f"nothing is tried: {self.reason}"
        if not self.planned:
            return "still trying"
        if self.tried == self.planned:
            return f"still trying: each of {self.planned} configurations has run, no verdict yet"
        return f"still trying, {self.tried} of {self.planned} configurations so far"


def tuning_results(
    trials: Mapping[str, TrialResult],
    searches: Iterable[object],
    restored: Mapping[str, tuple[str, str]],
    prevented: str,
    unhinted: Mapping[str, str] = MappingProxyType({}),
) -> tuple[TuningResult, ...]:
    """Return what a run has tuned so far, kept values first.

    Args:
        trials: Results of trials by the name of the tunable or space.
        searches: The searches of spaces; a search of all ranks is known by its outcomes alone.
        restored: The program's own value, and the one that an earlier run has kept, of tunables by name.
        prevented: Reason for which nothing may be tried; empty if it may.
        unhinted: Values of tunables that no hint can reach, by name.
    """
    results = {
        name: TuningResult(name, "searching", value, reason=prevented or NO_HINTS) for name, value in unhinted.items()
    }
    for name, (own, kept) in restored.items():
        results[name] = TuningResult(name, "kept", kept, reason=EARLIER, own=own, is_earlier=True)
    for search in searches:
        if isinstance(search, SearchedShapes):
            results |= {shape.name: _of_shape(shape, prevented) for shape in search.progress()}
    for name, trial in trials.items():
        if trial.value:
            results[name] = _decided(results.get(name), name, trial)
    return tuple(sorted(results.values(), key=lambda result: result.state != "kept"))


def _decided(known: TuningResult | None, name: str, trial: TrialResult) -> TuningResult:
    """Add what outcomes say to what is known of a search itself."""
    result = known or TuningResult(name, "searching" if trial.is_open else "unchanged", trial.value)
    if trial.is_kept:
        is_earlier = trial.first_value == trial.value
        own = result.own or ("" if is_earlier else trial.first_value)
        return replace(
            result, state="kept", time_ratio=trial.time_ratio, reason=trial.reason, own=own, is_earlier=is_earlier
        )
    if trial.is_open or result.state == "kept":
        return result
    return replace(result, state="unchanged", reason=trial.reason)


def _of_shape(shape: ShapeProgress, prevented: str) -> TuningResult:
    value = _shown(shape.configuration)
    if shape.is_kept:
        return TuningResult(shape.name, "kept", value, reason=EARLIER, own=_shown(shape.own), is_earlier=True)
    if shape.planned is None:
        return TuningResult(shape.name, "searching" if shape.is_open else "unchanged", value)
    return TuningResult(shape.name, "searching", value, tried=shape.measured, planned=shape.planned, reason=prevented)


def _change(own: str, kept: str) -> str:
    """Return the difference of two configurations, parameter by parameter, or of two values.

    >>> _change("rows=64 columns=8", "rows=128 columns=8")
    'rows 64 -> 128'
    """
    if not own:
        return f"kept {kept}"
    old, new = (dict(re.findall(r"(\S+?)=(\S+)", text)) for text in (own, kept))
    if not old or old.keys() != new.keys():
        return f"{own} -> {kept}"
    return ", ".join(f"{name} {old[name]} -> {value}" for name, value in new.items() if value != old[name])


def _shown(configuration: Any) -> str:
    if isinstance(configuration, Mapping):
        return " ".join(f"{name}={value}" for name, value in configuration.items())
    return configuration if isinstance(configuration, str) else json.dumps(configuration, default=str)
