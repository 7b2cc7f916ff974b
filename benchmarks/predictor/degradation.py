"""Simulated faults and confusing non-faults: recall, lead and false alarms of the alert rule and of its peers."""

from typing import Any, Final

import numpy as np
from benchmarks.predictor.breaches import passage_run, silent_cases
from benchmarks.predictor.breaches.confusion import confusion
from benchmarks.predictor.breaches.confusion import lines as confusion_lines
from benchmarks.predictor.breaches.detection import score
from benchmarks.predictor.breaches.rules_of_thumb import RULES
from benchmarks.predictor.options import Options
from benchmarks.predictor.simulation.generate import generate
from benchmarks.predictor.simulation.scenario import CONTENTION, Scenarios

SEEDS: Final = 3
OURS: Final = "kernelcast"
_FIGURES: Final = (
    "recall",
    "median_lead_minutes",
    "false_alarms_per_series_day",
    "contention_within_3_minutes",
    "contention_delay_minutes",
)


def run(options: Options) -> dict[str, Any]:
    """Score three seeds, from the given one on: 14 classes of 40 series, a day of history, a day of evaluation."""
    seeds = [_seed(options.seed + number) for number in range(SEEDS)]
    names = list(seeds[0]["detectors"])
    return {
        "simulated": True,
        "goals": {"recall": 0.95, "median_lead_minutes": 180, "false_alarms_per_series_day": 0.05},
        "seeds": seeds,
        "detectors": {name: _summary([one["detectors"][name] for one in seeds]) for name in names},
        "silent_cases": silent_cases.score(options.seed),
    }


def table(result: dict[str, Any]) -> str:
    """Text for people."""
    lines = ["simulated faults; the worst of the seeds is in brackets", ""]
    lines.append(f"{'':38}{'recall':>14}{'lead, min':>16}{'false/day':>16}{'contention <= 3 min':>22}")
    for name, one in result["detectors"].items():
        cells = (_cell(one[key]) for key in _FIGURES[:4])
        aligned = [f"{cell:>{width}}" for cell, width in zip(cells, (14, 16, 16, 22), strict=True)]
        lines.append(f"{name:38}" + "".join(aligned))
    lines += ["", f"{OURS}, seed {result['seeds'][0]['seed']}, each class"]
    for name, one in result["seeds"][0]["detectors"][OURS]["classes"].items():
        shown = {key: value for key, value in one.items() if value is not None}
        if name == CONTENTION:
            shown = {"series": one["series"]}
        lines.append(f"  {name:18}" + ", ".join(f"{key} {value}" for key, value in shown.items()))
    lines += confusion_lines(result["seeds"][0]["causes"])
    lines.append("")
    for name, one in result["silent_cases"].items():
        lines.append(f"{name}: {one['alarmed']} of {one['series']} alarmed, minutes after {one['minutes_after']}")
    return "\n".join(lines)


def _seed(seed: int) -> dict[str, Any]:
    scenarios = generate(seed)
    shown = np.isfinite(next(iter(scenarios.companions.values()))[:, 0])
    ours = passage_run.run(scenarios).alerts
    detectors: dict[str, Any] = {OURS: score(scenarios, ours)}
    detectors |= {name: score(scenarios, rule(scenarios)) for name, rule in RULES.items()}
    parts = {"with companions": shown, "without companions": ~shown}
    return {
        "seed": seed,
        "series": len(scenarios),
        "detectors": detectors,
        "causes": confusion(scenarios, ours),
        "companions": {name: _part(scenarios.select(part), ours[part]) for name, part in parts.items()},
    }


def _part(scenarios: Scenarios, alerts: Any) -> dict[str, Any]:
    figures = score(scenarios, alerts)
    figures.pop("classes")
    return figures


def _summary(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean over seeds and the worst of them, for each figure; None where a seed has none."""
    result: dict[str, Any] = {}
    for key in _FIGURES:
        values = [one[key] for one in seeds]
        if any(value is None for value in values):
            result[key] = None
            continue
        lower_is_worse = key in {"recall", "median_lead_minutes", "contention_within_3_minutes"}
        result[key] = {
            "mean": round(float(np.mean(values)), 4),
            "worst": min(values) if lower_is_worse else max(values),
        }
    return result


def _cell(figure: dict[str, float] | None) -> str:
    return "-" if figure is None else f"{figure['mean']:.3g} ({figure['worst']:.3g})"
