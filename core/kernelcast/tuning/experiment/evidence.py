"""Evidence from counterbalanced blocks: e-values, confidence bounds and the estimate of the log-ratio.

Each block's order (ABBA or BAAB) is drawn by a fair coin that is independent of the noise. If the candidate's true
log-ratio is `null`, then a block's contrast minus `null` is as likely positive as negative, whatever the noise is:
drift, load with a period, autocorrelation, spikes. The score of a contrast is bounded (Huber), so one spike counts
little. For scores x with symmetric signs, exp(a*sum(x) - a**2*sum(x**2)/2) is a supermartingale for every a, and so
is its mean over a half-normal distribution of a > 0. That mean is the e-value: under the null it exceeds 1/alpha at
any analysis, ever, with probability at most alpha. The last analysis, at a number of blocks that no measurement has
influenced, has a sharper test: it compares the sum of the scores with a normal distribution of the same variance.
Half of the permitted error is spent on the e-value at all analyses, half on the last one.

Sources: de la Pena, A General Class of Exponential Inequalities for Martingales and Ratios, Annals of Probability 27
(1999), lemma 6.1; Howard et al., Time-uniform Chernoff bounds, Probability Surveys 17 (2020), section 5 (mixtures);
Huber, Robust Estimation of a Location Parameter, Annals of Mathematical Statistics 35 (1964).
"""

from collections.abc import Sequence
from math import erfc, exp, inf, log, pi, sqrt
from statistics import NormalDist
from typing import Final

CLIP: Final = 1.5
"""Scores are linear up to this many scales, constant beyond."""

MIXTURE: Final = 4.0
"""Weight of small effects in the bound: it is tightest where the scores' squares add up to a few times this."""

SCALE_OF_MEDIAN: Final = 1.4826
"""Standard deviation over median magnitude, of normal noise."""
TOLERANCE: Final = 1e-5
"""Of a log-ratio: estimates and bounds are exact to 0.001 %."""

FAR_BELOW: Final = -30.0
"""Standard deviations from which on the normal distribution is replaced by its asymptotic form."""

DOUBLINGS: Final = 24
"""Of the step in the search for a bound; beyond them the data give none."""


Blocks = Sequence[Sequence[float]]
"""Each block's log-ratios: candidate minus kept, one for each half of the block; at least one block."""


class SequentialTest:
    """Tests and bounds that share one level.

    Args:
        level: Coverage of an interval, and 1 minus twice the error of a test, over all analyses together.
    """

    def __init__(self, level: float) -> None:
        self._log_limit = log(4 / (1 - level))
        self._last_limit = NormalDist().inv_cdf(1 - (1 - level) / 4)

    def below(self, blocks: Blocks, null: float, *, last: bool) -> bool:
        """Whether the data prove that the true log-ratio lies below `null`; `last`: this is the last analysis."""
        return self._proved(*_score(blocks, null), last=last)

    def above(self, blocks: Blocks, null: float, *, last: bool) -> bool:
        """Whether the data prove that the true log-ratio lies above `null`; `last`: this is the last analysis."""
        total, squares = _score(blocks, null)
        return self._proved(-total, squares, last=last)

    def bounds(self, blocks: Blocks, *, last: bool) -> tuple[float, float]:
        """Return the confidence bounds of the log-ratio; infinite where the data do not bound it."""
        mirrored = [[-value for value in block] for block in blocks]
        return -self._upper(mirrored, last=last), self._upper(blocks, last=last)

    def _proved(self, total: float, squares: float, *, last: bool) -> bool:
        if last and squares > 0 and -total / sqrt(squares) >= self._last_limit:
            return True
        return log_e_value(total, squares) >= self._log_limit

    def _upper(self, blocks: Blocks, *, last: bool) -> float:
        """Return the smallest log-ratio above the estimate that the data reject."""
        low = high = estimate(blocks)
        smallest, largest = _range(blocks)
        step = max(largest - smallest, abs(low) * 1e-3, 1e-6)
        for _ in range(DOUBLINGS):
            high = low + step
            if self.below(blocks, high, last=last):
                break
            step *= 2
        else:
            return inf
        while high - low > TOLERANCE * max(1.0, abs(low)):
            middle = (low + high) / 2
            if self.below(blocks, middle, last=last):
                high = middle
            else:
                low = middle
        return high


def log_e_value(total: float, squares: float) -> float:
    """Return the logarithm of the evidence that scores with this sum and sum of squares lie below zero."""
    spread = squares + MIXTURE
    scaled = -total / sqrt(spread)
    if scaled < FAR_BELOW:  # 0.5 * scaled**2 and the logarithm of the mass would cancel out
        return log(sqrt(2 / pi) / -scaled) + 0.5 * log(MIXTURE / spread)
    return 0.5 * scaled * scaled + log(erfc(-scaled / sqrt(2))) + 0.5 * log(MIXTURE / spread)


def estimate(blocks: Blocks) -> float:
    """Return the log-ratio at which the scores balance (Huber's estimate)."""
    low, high = _range(blocks)
    while high - low > TOLERANCE:
        middle = (low + high) / 2
        if _score(blocks, middle)[0] > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _range(blocks: Blocks) -> tuple[float, float]:
    values = [value for block in blocks for value in block]
    return min(values), max(values)


def _score(blocks: Blocks, null: float) -> tuple[float, float]:
    """Return the sum of the blocks' scores and of their squares; the scale uses magnitudes only, so signs stay fair."""
    magnitudes = sorted([abs(value - null) for block in blocks for value in block])
    scale = SCALE_OF_MEDIAN * magnitudes[len(magnitudes) // 2] or magnitudes[-1]
    if scale <= 0:
        return 0.0, 0.0
    total = squares = 0.0
    for block in blocks:
        score = 0.0
        for value in block:
            distance = (value - null) / scale
            score += CLIP if distance > CLIP else max(distance, -CLIP)
        score /= len(block)
        total += score
        squares += score * score
    return total, squares


def ratio(log_ratio: float) -> float:
    """Convert a log-ratio to a ratio."""
    return exp(min(log_ratio, 700.0))
