"""Scores of the Numenta Anomaly Benchmark, computed as the benchmark defines them.

A detection inside a window earns up to 1, the more the earlier; of several in one window the earliest counts. A
detection outside costs the more, the farther it is behind the last window. A window without a detection costs a
penalty. The sums are normalised so that a detector without detections has 0 and a perfect one 100.

Source: Lavin and Ahmad, "Evaluating Real-time Anomaly Detection Algorithms - the Numenta Anomaly Benchmark",
ICMLA 2015.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints

_PROBATION_SHARE: Final = 0.15
_PROBATION_FILE_ROWS: Final = 5000
_STEEPNESS: Final = 5.0
_FARTHEST: Final = 3.0
_OUTSIDE: Final = -1


@dataclass(frozen=True, slots=True)
class Profile:
    """Weights of a user of the benchmark.

    Attributes:
        name: The profile's name.
        false_positive: Cost of a detection far behind every window.
        false_negative: Cost of a window without a detection.
    """

    name: str
    false_positive: float
    false_negative: float


PROFILES: Final = (
    Profile("standard", 0.11, 1.0),
    Profile("reward_low_fp", 0.22, 1.0),
    Profile("reward_low_fn", 0.11, 2.0),
)


@dataclass(frozen=True, slots=True)
class ScoredFile:
    """The score of a detection at every row of one file.

    Attributes:
        window: int64, shape (rows,), the row's window; -1 outside of windows.
        worth: float64, shape (rows,), of a detection at this row: above 0 in a window, below 0 outside (weight 1).
        probation: How many rows at the beginning are not scored.
        windows: How many windows the file has.
    """

    window: Ints
    worth: Floats
    probation: int
    windows: int


def prepare(rows: int, windows: Sequence[tuple[int, int]]) -> ScoredFile:
    """Computes the score of a detection at each row.

    Args:
        rows: How many rows the file has.
        windows: First and last row of each window, in order, both inside the window.
    """
    index = np.arange(rows)
    window = np.full(rows, _OUTSIDE, np.int64)
    worth = np.full(rows, -1.0)
    for number, (first, last) in enumerate(windows):
        width = last - first + 1
        behind = index > last
        worth[behind] = _sigmoid((index[behind] - last) / max(width - 1, 1))
        inside = slice(first, last + 1)
        window[inside] = number
    for first, last in windows:
        inside = slice(first, last + 1)
        worth[inside] = _sigmoid(-(last - index[inside] + 1) / (last - first + 1)) / _sigmoid(np.array(-1.0))
    probation = int(_PROBATION_SHARE * min(rows, _PROBATION_FILE_ROWS))
    return ScoredFile(window, worth, probation, len(windows))


def score(files: Sequence[ScoredFile], scores: Sequence[Floats], threshold: float, profile: Profile) -> float:
    """The normalised score of a detector over a corpus at one threshold; 100 is perfect, 0 is silence.

    Args:
        files: As `prepare` made them.
        scores: Of each file the anomaly score of each row.
        threshold: A row with at least this score is a detection.
        profile: The weights.
    """
    return normalised(files, _raw(files, scores, threshold, profile), profile)


def _raw(files: Sequence[ScoredFile], scores: Sequence[Floats], threshold: float, profile: Profile) -> float:
    total = 0.0
    for file, values in zip(files, scores, strict=True):
        rows = file.probation + np.flatnonzero(values[file.probation :] >= threshold)
        window, worth = file.window[rows], file.worth[rows]
        total += profile.false_positive * float(worth[window == _OUTSIDE].sum())
        found = np.full(file.windows, -np.inf)
        inside = window != _OUTSIDE
        np.maximum.at(found, window[inside], worth[inside])
        total += float(np.where(np.isfinite(found), found, -profile.false_negative).sum())
    return total


def normalised(files: Sequence[ScoredFile], raw: float, profile: Profile) -> float:
    """A raw sum on the scale on which silence has 0 and perfection 100."""
    windows = sum(file.windows for file in files)
    silence = -profile.false_negative * windows
    return 100.0 * (raw - silence) / (windows - silence)


def best(files: Sequence[ScoredFile], scores: Sequence[Floats], profile: Profile) -> tuple[float, float]:
    """The threshold with the highest score over the corpus, and that score.

    Every threshold that gives different detections is tried: the sum is carried along while rows are added in
    descending order of their score.
    """
    order = _descending(files, scores)
    found: dict[tuple[int, int], float] = {}
    raw = -profile.false_negative * sum(file.windows for file in files)
    highest, chosen = raw, np.inf
    for position, (value, number, row) in enumerate(order):
        file = files[number]
        worth = float(file.worth[row])
        if file.window[row] == _OUTSIDE:
            raw += profile.false_positive * worth
        else:
            key = (number, int(file.window[row]))
            before = found.get(key, -profile.false_negative)
            found[key] = worth if key not in found else max(before, worth)
            raw += found[key] - before
        last_of_its_score = position + 1 == len(order) or order[position + 1][0] != value
        if last_of_its_score and raw > highest:
            highest, chosen = raw, value
    return chosen, normalised(files, highest, profile)


def _descending(files: Sequence[ScoredFile], scores: Sequence[Floats]) -> list[tuple[float, int, int]]:
    """(score, file, row) of every scored row with a score above 0, the highest first."""
    rows = [
        (float(values[row]), number, int(row))
        for number, (file, values) in enumerate(zip(files, scores, strict=True))
        for row in file.probation + np.flatnonzero(values[file.probation :] > 0)
    ]
    return sorted(rows, reverse=True)


def _sigmoid(position: Floats) -> Floats:
    """Worth of a detection by its distance from a window's end, in widths: 1 well before, 0 at the end, -1 behind."""
    inside: Floats = 2.0 / (1.0 + np.exp(_STEEPNESS * np.minimum(position, _FARTHEST))) - 1.0
    return np.where(position > _FARTHEST, -1.0, inside)
