"""What trials and searches have come to, by tunable and space: for the box at the program's end, and for the report."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from kernelcast.probe.outcomes import TrialResult
from kernelcast.probe.tuned.shapes import SearchedShapes, ShapeProgress

EARLIER: Final = "by an earlier run"


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
    """

    name: str
    state: Literal["kept", "searching", "unchanged"]
    value: str
    time_ratio: float | None = None
    tried: int | None = None
    planned: int | None = None
    reason: str = ""

    def words(self) -> str:
        """The result for people, the most important first."""
        if self.state == "kept":
            ratio = f"at {self.time_ratio:.2f} of the time" if self.time_ratio is not None else EARLIER
            return f"kept {ratio}: {self.value}"
        if self.state == "unchanged":
            return f"nothing was worth it; {self.value} stays"
        if self.reason and not self.tried:
            return f"nothing is tried: {self.reason}"
        return "still trying" + (f", {self.tried} of {self.planned} configurations so far" if self.planned else "")


def tuning_results(
    trials: Mapping[str, TrialResult],
    searches: Iterable[object],
    restored: Mapping[str, str],
    prevented: str,
) -> tuple[TuningResult, ...]:
    """Return what a run has tuned so far, kept values first.

    Args:
        trials: Results of trials by the name of the tunable or space.
        searches: The searches of spaces; a search of all ranks is known by its outcomes alone.
        restored: Values of tunables that an earlier run has kept, by name.
        prevented: Reason for which nothing may be tried; empty if it may.
    """
    results = {name: TuningResult(name, "kept", value, reason=EARLIER) for name, value in restored.items()}
    for search in searches:
        if isinstance(search, SearchedShapes):
            results |= {shape.name: _of_shape(shape, prevented) for shape in search.progress()}
    for name, trial in trials.items():
        if trial.value:
            results[name] = _decided(results.get(name), name, trial)
    return tuple(sorted(results.values(), key=lambda result: result.state != "kept"))


def _decided(known: TuningResult | None, name: str, trial: TrialResult) -> TuningResult:
    """Add what outcomes say to what is known of a search itself."""
    own = known or TuningResult(name, "searching" if trial.is_open else "unchanged", trial.value)
    if trial.is_kept:
        return replace(own, state="kept", time_ratio=trial.time_ratio, reason=trial.reason)
    if trial.is_open or own.state == "kept":
        return own
    return replace(own, state="unchanged", reason=trial.reason)


def _of_shape(shape: ShapeProgress, prevented: str) -> TuningResult:
    value = _shown(shape.configuration)
    if shape.is_kept:
        return TuningResult(shape.name, "kept", value, reason=EARLIER)
    if shape.planned is None:
        return TuningResult(shape.name, "searching" if shape.is_open else "unchanged", value)
    return TuningResult(shape.name, "searching", value, None, shape.measured, shape.planned, prevented)


def _shown(configuration: Any) -> str:
    if isinstance(configuration, Mapping):
        return " ".join(f"{name}={value}" for name, value in configuration.items())
    return configuration if isinstance(configuration, str) else json.dumps(configuration, default=str)
