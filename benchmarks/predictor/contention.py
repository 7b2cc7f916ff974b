"""Contention: how soon after the limit is passed an alert fires, evaluated every minute."""

from typing import Any, Final

from benchmarks.predictor.breaches import passage_run
from benchmarks.predictor.breaches.confusion import confusion
from benchmarks.predictor.breaches.confusion import lines as confusion_lines
from benchmarks.predictor.breaches.detection import score
from benchmarks.predictor.breaches.rules_of_thumb import RULES
from benchmarks.predictor.degradation import OURS, SEEDS
from benchmarks.predictor.options import Options
from benchmarks.predictor.simulation.generate import generate

COUNTS: Final = {"contention": 120, "deploy": 60, "restart": 60, "healthy-kernel": 120}
"""Contention among kernels that change or wander for other reasons."""

_FIGURES: Final = ("contention_within_3_minutes", "contention_delay_minutes", "false_alarms_per_series_day")


def run(options: Options) -> dict[str, Any]:
    """Score three seeds, from the given one on."""
    seeds = []
    for number in range(SEEDS):
        scenarios = generate(options.seed + number, COUNTS)
        ours = passage_run.run(scenarios).alerts
        detectors = {OURS: ours} | {name: rule(scenarios) for name, rule in RULES.items()}
        seeds.append(
            {
                "seed": options.seed + number,
                "detectors": {name: score(scenarios, alerts) for name, alerts in detectors.items()},
                "causes": confusion(scenarios, ours),
            }
        )
    return {"simulated": True, "goals": {"contention_within_3_minutes": 0.9}, "seeds": seeds}


def table(result: dict[str, Any]) -> str:
    """Text for people."""
    lines = [f"simulated contention\n\n{'seed':>5}  {'':38}{'<= 3 min':>10}{'median delay':>14}{'false/day':>12}"]
    for seed in result["seeds"]:
        for name, one in seed["detectors"].items():
            cells = [one[key] for key in _FIGURES]
            shown = ["-" if cell is None else f"{cell:.3g}" for cell in cells]
            lines.append(f"{seed['seed']:>5}  {name:38}{shown[0]:>10}{shown[1]:>14}{shown[2]:>12}")
    return "\n".join(lines + confusion_lines(result["seeds"][0]["causes"]))
