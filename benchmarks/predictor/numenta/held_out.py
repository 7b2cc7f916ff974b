"""Constants chosen on some folders of the benchmark and scored on the folder that was left out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from benchmarks.predictor.numenta.files import Recording
from benchmarks.predictor.numenta.scoring import PROFILES, best, score

from kernelcast.predictor.anomalies import AnomalySettings
from kernelcast.predictor.arrays import Floats

Scores = Mapping[AnomalySettings, Sequence[Floats]]

CANDIDATES: Final = (
    AnomalySettings(),
    AnomalySettings(record_margin=0.0),
    AnomalySettings(slow=1 / 300),
)
_STANDARD: Final = PROFILES[0]


def held_out(
    recordings: Sequence[Recording],
    defaults: Sequence[Floats],
    onsets: Callable[[Sequence[Recording], AnomalySettings], Sequence[Floats]],
) -> dict[str, Any]:
    """Per folder: standard score with constants and threshold from the other folders, and with its own best ones.

    Args:
        recordings: All files.
        defaults: Onsets with the default constants, which are the first candidate.
        onsets: Computes the onsets of files with given constants.
    """
    scores = {settings: onsets(recordings, settings) for settings in CANDIDATES[1:]} | {CANDIDATES[0]: defaults}
    folders = sorted({one.folder for one in recordings if one.scored.windows})
    result = {folder: _folder(recordings, scores, folder) for folder in folders}
    loss = max(one["chosen_with_it"] - one["chosen_without_it"] for one in result.values())
    return {"folders": result, "largest_loss": round(loss, 2)}


def _folder(recordings: Sequence[Recording], scores: Scores, folder: str) -> dict[str, Any]:
    own = [place for place, one in enumerate(recordings) if one.folder == folder]
    others = [place for place, one in enumerate(recordings) if one.folder != folder]
    everything = list(range(len(recordings)))
    settings, threshold = _chosen(recordings, scores, others)
    files = [recordings[place].scored for place in own]
    without = score(files, [scores[settings][place] for place in own], threshold, _STANDARD)
    all_settings, all_threshold = _chosen(recordings, scores, everything)
    with_it = score(files, [scores[all_settings][place] for place in own], all_threshold, _STANDARD)
    changed = {key: value for key, value in asdict(settings).items() if value != asdict(CANDIDATES[0])[key]}
    return {
        "chosen_without_it": round(without, 2),
        "chosen_with_it": round(with_it, 2),
        "threshold": round(threshold, 3),
        "constants": changed or "defaults",
    }


def _chosen(recordings: Sequence[Recording], scores: Scores, places: Sequence[int]) -> tuple[AnomalySettings, float]:
    """The constants and the threshold with the highest standard score on some files."""
    files = [recordings[place].scored for place in places]
    found = {
        settings: best(files, [values[place] for place in places], _STANDARD) for settings, values in scores.items()
    }
    settings = max(found, key=lambda one: found[one][1])
    return settings, found[settings][0]
