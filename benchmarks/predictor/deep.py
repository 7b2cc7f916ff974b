"""Models that statsmodels fits in worker processes: their gain on simulated series, their cost, and their memory.

The gain is that of forecasts of simulated GPUs' blocks of five minutes, second day of two, relative to the fast methods
alone: geometric means over series of ratios of absolute errors and of quantile losses.
"""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.predictor.memory.full import resident_bytes
from benchmarks.predictor.options import Options
from benchmarks.predictor.simulation.generate import generate
from benchmarks.predictor.simulation.scenario import CLASSES

from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.predictor.forecasting.combination import LeadForecast, forecast
from kernelcast.predictor.forecasting.deep.messages import MODELS, FitAnswer, FitRequest
from kernelcast.predictor.forecasting.deep.panel import FittedPanel
from kernelcast.predictor.forecasting.deep.pool import FitPool
from kernelcast.predictor.forecasting.deep.process import FitProcess
from kernelcast.predictor.forecasting.deep.recorded import fitted_panel
from kernelcast.predictor.forecasting.deep.schedule import BLOCKS
from kernelcast.predictor.forecasting.panel import Panel
from kernelcast.predictor.forecasting.rolling import lagged
from kernelcast.predictor.forecasting.spikes import without_spikes
from kernelcast.predictor.passage.series import BLOCK_SECONDS, condense

PER_CLASS: Final = 2
LEADS: Final = (1, 3, 12, 48)
LEVELS: Final = (0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975)
TICK_SECONDS: Final = 0.005
QUIET_SECONDS: Final = 10.0


def run(options: Options) -> dict[str, Any]:
    """All figures."""
    scenarios = generate(options.seed, dict.fromkeys(CLASSES, PER_CLASS))
    values, _ = condense(scenarios.values, round(BLOCK_SECONDS / scenarios.interval_seconds))
    main = resident_bytes()
    ticks = Ticks()
    quiet = ticks.during(lambda: time.sleep(QUIET_SECONDS))
    process: list[FitProcess] = []

    def started() -> FitProcess:
        process.append(FitProcess())
        return process[-1]

    pool = FitPool(1, started)
    answers: list[FitAnswer] = []

    def fit_all(requests: Sequence[FitRequest]) -> list[FitAnswer]:
        answers.extend(pool.fit_all(requests))
        return answers

    models: list[FittedPanel] = []
    busy = ticks.during(lambda: models.append(fitted_panel(values, BLOCKS, fit_all)))
    worker = _resident(process[0].pid)
    pool.close(5.0)
    seconds = sum(each.seconds for each in answers)
    fits = sum(len(each.models) for each in answers)
    return {
        "simulated": True,
        "seed": options.seed,
        "series": len(values),
        "gain": _gain(values, models[0]),
        "outcomes": _outcomes(answers),
        "windows": len(answers),
        "milliseconds_a_window": 1e3 * seconds / max(len(answers), 1),
        "fits_a_minute_of_processor_time": 60 * fits / max(seconds, 1e-9),
        "main_mib": {"before": main / 2**20, "after": resident_bytes() / 2**20},
        "worker_mib": worker / 2**20,
        "late_ms": {"without_fits": quiet, "with_fits": busy},
    }


def table(result: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [f"{result['series']} simulated series (seed {result['seed']}); ratios to the fast methods alone"]
    lines += [f"{'ahead':10}{'absolute error':>16}{'quantile loss':>16}{'series that use models':>24}"]
    for name, each in result["gain"].items():
        lines.append(f"{name:10}{each['mae']:16.3f}{each['loss']:16.3f}{each['used']:24.2f}")
    fits, memory, late = result["outcomes"], result["main_mib"], result["late_ms"]
    each, minute = result["milliseconds_a_window"], result["fits_a_minute_of_processor_time"]
    lines.append(
        f"{result['windows']} windows, {each:.0f} ms of processor time each, {minute:.0f} fits a minute; {fits}"
    )
    lines.append(
        f"resident: this process {memory['before']:.0f}, then {memory['after']:.0f} MiB; "
        f"worker {result['worker_mib']:.0f} MiB"
    )
    quiet, busy = _shown(late["without_fits"]), _shown(late["with_fits"])
    lines.append(f"a thread that wakes every 5 ms is late by {quiet} ms without fits, {busy} ms with (p50 / p99 / max)")
    return "\n".join(lines)


def _shown(late: dict[str, float]) -> str:
    return " / ".join(f"{each:.1f}" for each in late.values())


def _gain(values: Floats, models: FittedPanel) -> dict[str, dict[str, float]]:
    panel = Panel(without_spikes(values), 0, 1, np.zeros(len(values), np.int64))
    found = {}
    for lead in LEADS:
        fast, deep = (forecast(panel, lead, LEVELS, (), each) for each in (None, models))
        scores = [_scores(each, values, lead) for each in (fast, deep)]
        moves: Bools = scores[0][0] > 0
        ratios = [scores[1][each][moves] / scores[0][each][moves] for each in (0, 1)]
        means = [float(np.exp(np.mean(np.log(each)))) for each in ratios]
        used = float((deep.center != fast.center)[:, values.shape[1] // 2 :].mean())
        found[f"{lead * BLOCK_SECONDS / 3600:.3g} h"] = {"mae": means[0], "loss": means[1], "used": used}
    return found


def _scores(found: LeadForecast, values: Floats, lead: int) -> tuple[Floats, Floats]:
    """Mean absolute error and mean quantile loss of each series, on the second half."""
    scored = slice(values.shape[1] // 2, None)
    error = np.nanmean(np.abs(values - lagged(found.center, lead))[:, scored], axis=1)
    losses = []
    for level, quantile in zip(LEVELS, found.quantiles, strict=True):
        gap = (values - lagged(quantile, lead))[:, scored]
        losses.append(np.nanmean(np.maximum(level * gap, (level - 1) * gap), axis=1))
    return error, np.mean(losses, axis=0)


def _outcomes(answers: Sequence[FitAnswer]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {model: {} for model in MODELS}
    for answer in answers:
        for model, outcome in answer.outcomes.items():
            found[model][outcome.value] = found[model].get(outcome.value, 0) + 1
    return found


def _resident(pid: int) -> int:
    """Resident memory of another process, bytes."""
    (line,) = (each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


class Ticks:
    """A thread that wants to wake every 5 ms, as the one that reads Kafka does when messages come."""

    def during(self, work: Any) -> dict[str, float]:
        """Measure by how much it is late while something else is done, milliseconds."""
        late: list[float] = []
        ending = threading.Event()

        def tick() -> None:
            while not ending.is_set():
                due = time.perf_counter() + TICK_SECONDS
                time.sleep(TICK_SECONDS)
                late.append(time.perf_counter() - due)

        thread = threading.Thread(target=tick)
        thread.start()
        work()
        ending.set()
        thread.join()
        found = 1e3 * np.array(late)
        return {"p50": float(np.median(found)), "p99": float(np.quantile(found, 0.99)), "max": float(found.max())}
