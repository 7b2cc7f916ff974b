"""The benchmark of a fleet: seeds, table, and the confusion of causes."""

import json
import statistics
import sys
import time
from collections import Counter
from typing import Any, Final

from benchmarks.predictor.fleet import peers
from benchmarks.predictor.fleet.engine import Change, FleetEngine
from benchmarks.predictor.fleet.layout import DAY_STEPS, FleetSize
from benchmarks.predictor.fleet.progress import Progress
from benchmarks.predictor.fleet.recording import record
from benchmarks.predictor.fleet.score import paging, score
from benchmarks.predictor.options import Options

SEEDS: Final = 5
SMALL: Final = FleetSize(gpus=128, days=3, faults=8)
GOALS: Final = {"right": 45, "faults": 50, "pages_per_day": 5}


def run(options: Options) -> dict[str, Any]:
    """Score fleets of some seeds, five by default, with ten faults each; writes the figures after each seed."""
    size = SMALL if options.small else FleetSize()
    seeds: list[dict[str, Any]] = []
    for seed in range(options.seed, options.seed + (options.seeds or SEEDS)):
        seeds.append(run_seed(seed, size, Progress(sys.stderr)))
        if options.json is not None:
            options.json.write_text(json.dumps(_together(size, seeds), indent=2) + "\n")
    return _together(size, seeds)


def run_seed(seed: int, size: FleetSize, progress: Progress) -> dict[str, Any]:
    """Score one fleet with the engine and with its peers."""
    started = time.process_time()
    recording = record(seed, size)
    changes: list[Change] = []
    ends = range(DAY_STEPS, size.steps + 1)
    engine = FleetEngine(recording)
    for number, changed in enumerate(engine.steps(ends), 1):
        changes += changed
        progress.show(seed, recording, (number, len(ends)), changes)
    progress.end()
    found = score(recording, changes)
    found["without_a_budget"] = paging(recording, engine.unlimited_changes, engine.passed)
    rates = peers.pages_per_day(recording)
    return {"seed": seed, **found, "peers": rates, "processor_seconds": round(time.process_time() - started, 1)}


def _together(size: FleetSize, seeds: list[dict[str, Any]]) -> dict[str, Any]:
    confusion: Counter[tuple[str, str]] = Counter()
    for one in seeds:
        confusion.update((result["expected"], result["found"]) for result in one["results"])
    return {
        "simulated": True,
        "gpus": size.gpus,
        "days": size.days,
        "goals": GOALS,
        "faults": sum(one["faults"] for one in seeds),
        "right": sum(one["right"] for one in seeds),
        "pages_per_day_of_the_worst_seed": max(one["pages_per_day"] for one in seeds),
        "confusion": [{"expected": a, "found": b, "count": n} for (a, b), n in sorted(confusion.items())],
        "seeds": seeds,
    }


def table(result: dict[str, Any]) -> str:
    """Text for people."""
    lines = [f"a simulated fleet of {result['gpus']} GPUs for {result['days']} days, the first as history", ""]
    lines.append(f"{'seed':>6}{'right':>12}{'pages/day':>12}{'worst day':>12}{'false':>8}{'tickets':>9}{'held':>6}")
    for one in result["seeds"]:
        right = f"{one['right']} of {one['faults']}"
        lines.append(
            f"{one['seed']:>6}{right:>12}{one['pages_per_day']:>12}{one['pages_of_the_worst_day']:>12}"
            f"{len(one['false_pages']):>8}{one['tickets']:>9}{one['held']:>6}"
        )
    lines += ["", f"paged on the right unit with the right cause: {result['right']} of {result['faults']}", ""]
    free = [one["without_a_budget"] for one in result["seeds"]]
    leads = [lead for one in free for lead in one["lead_minutes"]]
    precision = ", ".join(f"{one['precision']}" for one in free)
    lines += [
        "without a budget of pages, by seed:",
        f"pages a day {', '.join(str(one['pages_per_day']) for one in free)}; precision {precision}",
        f"paged before the limit was passed, or at once: {sum(one['recall'] for one in free)} of {result['faults']}",
        f"lead, where it takes 3 h or more: median {statistics.median(leads) if leads else '-'} min of {len(leads)}",
        "",
    ]
    for name in result["seeds"][0]["peers"]:
        rates = [one["peers"][name] for one in result["seeds"]]
        lines.append(f"{name}: {min(rates)} to {max(rates)} pages a day")
    lines += ["", f"{'cause of the fault':22}{'cause of the page':22}{'faults':>6}"]
    lines += [f"{one['expected']:22}{one['found']:22}{one['count']:>6}" for one in result["confusion"]]
    return "\n".join(lines)
