"""Anomaly scores on the Numenta Anomaly Benchmark, and false alarms on healthy series."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from benchmarks.predictor.numenta import healthy_series
from benchmarks.predictor.numenta import peers as nab_peers
from benchmarks.predictor.numenta.files import Recording, load
from benchmarks.predictor.numenta.held_out import held_out
from benchmarks.predictor.numenta.scoring import PROFILES, best, score
from benchmarks.predictor.options import Options

from kernelcast.predictor.anomalies import AnomalyDetector, AnomalySettings
from kernelcast.predictor.arrays import Floats

_ACT: Final = 1.0
_PEERS: Final[dict[str, Callable[[Floats], Floats]]] = {
    "windowed Gaussian": nab_peers.windowed_gaussian,
    "EWMA z-score": nab_peers.ewma_z_score,
    "CUSUM": nab_peers.cusum,
}
_HEALTHY_SERIES: Final = 20
_HEALTHY_DAYS: Final = 7


def run(options: Options) -> dict[str, Any]:
    """All figures: scores beside those of the peers, and false alarms."""
    recordings = load(options.recordings("nab"))
    ours = onsets(recordings, AnomalySettings())
    scores = {"kernelcast": scored(recordings, ours, _ACT)}
    for name, peer in _PEERS.items():
        scores[name] = scored(recordings, [peer(one.values) for one in recordings], None)
    return {
        "files": len(recordings),
        "windows": sum(one.scored.windows for one in recordings),
        "scores": scores,
        "held_out": held_out(recordings, ours, onsets),
        "false_alarms_per_series_day": false_alarms(options.seed),
    }


def onsets(recordings: Sequence[Recording], settings: AnomalySettings) -> list[Floats]:
    """The onset of every row of every file; a daily season is assumed for all."""
    grids = [one.grid.values for one in recordings]
    panel = np.full((max(map(len, grids)), len(grids)), np.nan)
    for column, grid in enumerate(grids):
        panel[: len(grid), column] = grid
    intervals = np.array([one.grid.interval_seconds for one in recordings])
    seasons = np.array([one.season for one in recordings])
    detector = AnomalyDetector(len(grids), intervals, seasons, settings)
    found = np.stack([detector.step(values).onset for values in panel])
    return [found[one.grid.interval_of_row, column] for column, one in enumerate(recordings)]


def scored(recordings: Sequence[Recording], scores: Sequence[Floats], fixed: float | None) -> dict[str, Any]:
    """Scores of all profiles at the best threshold and, where there is one, at the fixed threshold."""
    files = [one.scored for one in recordings]
    result: dict[str, Any] = {}
    for profile in PROFILES:
        threshold, value = best(files, scores, profile)
        result[profile.name] = {"best": round(value, 2), "threshold": round(threshold, 4)}
        if fixed is not None:
            result[profile.name]["fixed"] = round(score(files, scores, fixed, profile), 2)
    return result


def false_alarms(seed: int) -> dict[str, float]:
    """Onsets of at least 1 per series and day, of each kind of healthy series; the first day included."""
    rng = np.random.default_rng(seed)
    rows = _HEALTHY_DAYS * healthy_series.DAY
    panel = np.stack([kind(rng, rows) for kind in healthy_series.KINDS for _ in range(_HEALTHY_SERIES)])
    detector = AnomalyDetector(len(panel), 60.0, healthy_series.DAY)
    alarms = np.zeros(len(panel))
    for values in panel.T:
        alarms += detector.step(np.ascontiguousarray(values)).onset >= _ACT
    means = alarms.reshape(len(healthy_series.KINDS), -1).mean(axis=1) / _HEALTHY_DAYS
    result = {kind.__name__: round(float(one), 3) for kind, one in zip(healthy_series.KINDS, means, strict=True)}
    return result | {"all": round(float(means.mean()), 3)}


def table(result: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [
        f"NAB, {result['files']} files, {result['windows']} windows: standard / low FP / low FN",
        *(_score_line(name, one) for name, one in result["scores"].items()),
        "\nStandard score of a folder, constants and threshold chosen without and with it:",
    ]
    for folder, one in result["held_out"]["folders"].items():
        lines.append(f"  {folder:24} {one['chosen_without_it']:6.1f} {one['chosen_with_it']:6.1f}  {one['constants']}")
    lines.append("\nFalse alarms per series-day on simulated healthy series, one value a minute:")
    lines += [f"  {kind:24} {rate:6.3f}" for kind, rate in result["false_alarms_per_series_day"].items()]
    return "\n".join(lines)


def _score_line(name: str, scores: dict[str, Any]) -> str:
    values = scores.values()
    text = f"  {name:24} best threshold " + " / ".join(f"{one['best']:5.1f}" for one in values)
    if all("fixed" in one for one in values):
        text += "   threshold 1 " + " / ".join(f"{one['fixed']:5.1f}" for one in values)
    return text
