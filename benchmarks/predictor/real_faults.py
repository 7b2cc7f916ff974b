"""Faults in the noise of recorded series: recall, lead and false alarms beside those in simulated noise.

The same shapes of faults, limits and alert rule are applied to both. Recorded values count as one a minute, whatever
their own interval was: only their distribution and their memory are used.
"""

from typing import Any, Final

import numpy as np
from benchmarks.predictor.breaches import passage_run
from benchmarks.predictor.breaches.detection import score
from benchmarks.predictor.breaches.rules_of_thumb import RULES
from benchmarks.predictor.options import SHARED, Options
from benchmarks.predictor.recorded.inject import GRID, HEADROOMS, inject
from benchmarks.predictor.recorded.noise import sources
from benchmarks.predictor.simulation.generate import generate
from benchmarks.predictor.simulation.scenario import Scenarios
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats

OURS: Final = "kernelcast"
GOAL: Final = 0.9
"""Recall in recorded noise over that in simulated noise."""
SIMULATED: Final = {"hot-but-stable": 16, "healthy-kernel": 32, "diurnal": 16}
"""Healthy simulated series that serve as noise."""
_FIGURES: Final = ("recall", "median_lead_minutes", "false_alarms_per_series_day")


def run(options: Options) -> dict[str, Any]:
    """Score the alert rule in noise of recordings and of the simulation."""
    folder = options.data or SHARED
    if not folder.is_dir():
        return {"skipped": f"{folder} does not exist or is no folder; name a folder of recordings with --data"}
    rng = np.random.default_rng(options.seed)
    found = sources(folder, rng)
    if not found:
        return {"skipped": f"{folder} has no recording with enough values; name another folder with --data"}
    noises = {
        "recorded": [noise.drawn(rng, GRID.length) for noise in found],
        "simulated": list(generate(options.seed, SIMULATED).values),
    }
    kinds = np.array([noise.kind for noise in found])
    headrooms = {str(one): _at_headroom(rng, noises, kinds, one) for one in HEADROOMS}
    return {"recordings": [noise.name for noise in found], "goals": {"recall_ratio": GOAL}, "headrooms": headrooms}


def table(result: dict[str, Any]) -> str:
    """Text for people."""
    if "skipped" in result:
        return f"skipped: {result['skipped']}"
    lines = [f"{len(result['recordings'])} recorded series; faults injected, onset to breach 2 to 12 h"]
    for headroom, found in result["headrooms"].items():
        lines += ["", f"limit {headroom} times as far above the median as the highest mean of the first half"]
        lines.append(f"{'noise':26}{'detector':38}{'faults':>8}{'recall':>10}{'lead, min':>12}{'false/day':>12}")
        for name, part in found["noise"].items():
            lines += [_line(name, detector, one) for detector, one in part["detectors"].items()]
        ratio, goal = found["recall_ratio"], result["goals"]["recall_ratio"]
        lines.append(f"recall in recorded noise over that in simulated noise: {ratio} (goal: at least {goal})")
    return "\n".join(lines)


def _line(noise: str, detector: str, one: dict[str, Any]) -> str:
    cells = ["-" if one[key] is None else f"{one[key]:.3g}" for key in _FIGURES]
    return f"{noise:26}{detector:38}{one['drifts']:8}{cells[0]:>10}{cells[1]:>12}{cells[2]:>12}"


def _at_headroom(
    rng: np.random.Generator, noises: dict[str, list[Floats]], kinds: NDArray[np.str_], headroom: float
) -> dict[str, Any]:
    recorded, owner = inject(rng, noises["recorded"], headroom)
    simulated, _ = inject(rng, noises["simulated"], headroom)
    scores = _scores(recorded, {"recorded": np.ones(len(recorded), np.bool_)} | _of_kinds(kinds[owner]))
    scores |= _scores(simulated, {"simulated": np.ones(len(simulated), np.bool_)})
    ours = [scores[name]["detectors"][OURS]["recall"] for name in noises]
    ratio = round(ours[0] / ours[1], 4) if None not in ours and ours[1] else None
    return {"recall_ratio": ratio, "noise": scores}


def _of_kinds(kinds: NDArray[np.str_]) -> dict[str, Bools]:
    return {f"recorded, {kind}": kinds == kind for kind in np.unique(kinds).tolist()}


def _scores(scenarios: Scenarios, parts: dict[str, Bools]) -> dict[str, Any]:
    """Scores of each detector on parts of the series."""
    alerts = {OURS: passage_run.run(scenarios).alerts} | {name: rule(scenarios) for name, rule in RULES.items()}
    return {
        part: {
            "series": int(rows.sum()),
            "detectors": {name: score(scenarios.select(rows), one[rows]) for name, one in alerts.items()},
        }
        for part, rows in parts.items()
    }
