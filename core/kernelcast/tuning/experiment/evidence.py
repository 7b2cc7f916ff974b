"""Evidence about the mean cost of a launch: e-values of counterbalanced blocks, and a bound of long launches.

The judge is to know the mean time of an item, and rare long launches can decide it that nobody has seen yet. So times
are taken apart. The *body* of a launch is its time up to a limit, in typical launches; the *tail* is what is above it.

The body: each block's order is drawn by a fair coin that is independent of the noise, so under the null a block's
contrast is as likely positive as negative: drift, load with a period, autocorrelation. For scores x with symmetric
signs, exp(a*sum(x) - a**2*sum(x**2)/2) is a supermartingale for every a, and so is its mean over a half-normal
distribution of a > 0. That mean is the e-value: under the null it exceeds 1/alpha at any analysis, ever, with
probability at most alpha. The last analysis, at a number of blocks that no measurement has influenced, has a sharper
test: it compares the sum of the scores with a normal distribution of the same variance. Half of the permitted error is
spent on the e-value at all analyses, half on the last one. Scores are not cut, because the mean is asked for; where the
arms have noise of different shapes, signs are symmetric only about, which the bounded body keeps harmless.

The tail: the number of long launches is Poisson's, and its exact upper bound times the longest launch that is reckoned
with (`Rules.worst`) bounds their cost, as long as few were seen; from `MANY_EVENTS` on it is that of their sum.

Sources: de la Pena, A General Class of Exponential Inequalities for Martingales and Ratios, Annals of Probability 27
(1999), lemma 6.1; Howard et al., Time-uniform Chernoff bounds, Probability Surveys 17 (2020), section 5 (mixtures);
Garwood, Fiducial Limits for the Poisson Distribution, Biometrika 28 (1936).
"""

from collections.abc import Callable, Sequence
from math import erfc, exp, hypot, inf, log, pi, sqrt
from statistics import NormalDist
from typing import Final, NamedTuple

MIXTURE: Final = 4.0
"""Weight of small effects in the bound: it is tightest where the scores' squares add up to a few times this."""
SCALE_OF_MEDIAN: Final = 1.4826
"""Standard deviation over median magnitude, of normal noise."""
FAR_BELOW: Final = -30.0
"""Standard deviations from which on the normal distribution is replaced by its asymptotic form."""
TAIL_ERROR: Final = 0.005
"""Error of the bound of long launches."""
MANY_EVENTS: Final = 8
"""Long launches from which on their own sum says what they cost."""
RARE: Final = -log(TAIL_ERROR)
"""Upper bound of the expected number of long launches where none was seen."""
BODY_SHARE: Final = 0.2
"""The body ends at this share of the way from a typical launch to the longest one that is reckoned with."""


class Block(NamedTuple):
    """A block's mean bodies of both arms, in typical launches of the kept configuration, and its compared launches."""

    new: float
    old: float
    launches: int


class Tail:
    """Long launches of one arm.

    Args:
        excess: What each of its launches takes above the limit of the body, in typical launches; 0 for most.
        worst: Longest launch that is reckoned with, in typical launches.

    Attributes:
        launches: Launches of the arm.
        mean: Mean cost a launch, as measured.
        error: Error of the mean, for many long launches.
        has_many: Whether so many were seen that their own sum says what they cost.
    """

    def __init__(self, excess: Sequence[float], worst: float) -> None:
        events = [one for one in excess if one > 0]
        self.launches = launches = max(1, len(excess))
        longest = max(events, default=0.0)
        self.has_many = len(events) >= MANY_EVENTS
        self.mean = sum(events) / launches
        few_most = poisson_most(len(events))
        # As of events of one size, whose number has an exact bound; the normal one is too low for a dozen events.
        deviations = (few_most - len(events)) / sqrt(max(1, len(events)))
        self.error = deviations * sqrt(sum(one * one for one in events)) / launches
        self._unseen = RARE / launches * max(0.0, (1 - BODY_SHARE) * (worst - 1) - longest)
        self._few_most = few_most / launches * max(worst - 1, longest)

    def least(self) -> float:
        """Return the lower bound of the cost a launch."""
        return max(0.0, self.mean - self.error) if self.has_many else 0.0

    def most(self, error: float) -> float:
        """Return the upper bound of the cost a launch, launches of the longest kind that were not seen included.

        Args:
            error: Error of the mean, where many long launches were seen.
        """
        return self.mean + error + self._unseen if self.has_many else self._few_most


def tails_most(new: Tail, old: Tail, ratio: float) -> float:
    """Return the upper bound of what the candidate's long launches cost above `ratio` times the kept ones."""
    if new.has_many and old.has_many:
        return new.most(hypot(new.error, ratio * old.error)) - ratio * old.mean
    return new.most(new.error) - ratio * old.least()


def body_limit(worst: float) -> float:
    """Return the limit of the body, in typical launches."""
    return 1 + BODY_SHARE * (worst - 1)


def poisson_most(events: int) -> float:
    """Return the upper bound of the expected number of events where so many were seen."""
    low, high = float(events), events + 10 * sqrt(events + 1.0) + RARE
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        term = total = exp(-middle)
        for number in range(1, events + 1):
            term *= middle / number
            total += term
        low, high = (middle, high) if total > TAIL_ERROR else (low, middle)
    return high


class Evidence:
    """All blocks of an analysis with the long launches of both arms.

    A ratio is the mean time of the candidate's launches over that of the kept ones.

    Args:
        blocks: Mean bodies; at least one block.
        new: Long launches of the candidate.
        old: Those of the kept configuration.
        level: Coverage of an interval, and 1 minus twice the error of a test, over all analyses together.

    Attributes:
        blocks: Number of blocks.
        launches: Compared launches of the candidate.
    """

    def __init__(self, blocks: Sequence[Block], new: Tail, old: Tail, level: float) -> None:
        self._blocks, self._new, self._old = blocks, new, old
        self._log_limit = log(4 / (1 - level))
        self._last_limit = NormalDist().inv_cdf(1 - (1 - level) / 4)
        self.blocks = len(blocks)
        self.launches = launches = sum(block.launches for block in blocks)
        self._new_body = sum(block.new * block.launches for block in blocks) / launches
        self._old_body = sum(block.old * block.launches for block in blocks) / launches
        self._scale = 1.0

    @property
    def quartile(self) -> float:
        """The ratio that three quarters of the blocks exceed; long launches count as those at the limit."""
        return sorted(block.new / block.old for block in self._blocks)[self.blocks // 4]

    @property
    def estimate(self) -> float:
        """The ratio, as measured."""
        return (self._new_body + self._new.mean) / (self._old_body + self._old.mean)

    def is_below(self, ratio: float, *, last: bool) -> bool:
        """Whether the data prove that the true ratio is lower; `last`: this is the last analysis."""
        return self._proved(*self._score(ratio, tails_most(self._new, self._old, ratio)), last=last)

    @property
    def is_body_below(self) -> bool:
        """Whether the bodies alone prove that the candidate is faster."""
        return self._proved(*self._score(1.0, 0.0), last=False)

    @property
    def needs_stays(self) -> bool:
        """Whether long launches that were not seen are what is missing most to prove that the candidate is faster."""
        _, squares = self._score(1.0, 0.0)
        # What each further launch would take from a bound: that of the tails falls with 1 / n, that of the body with
        # its root.
        body = least_total(squares, self._log_limit) * self._scale / self.launches
        return not self._new.mean and self._new.most(0.0) / self._new.launches > body / (2 * self.launches)

    def is_above(self, ratio: float, *, last: bool) -> bool:
        """Whether the data prove that the true ratio is higher, launches that were not seen left out."""
        total, squares = self._score(ratio, self._new.least() - ratio * (self._old.mean + self._old.error))
        return self._proved(-total, squares, last=last)

    def bounds(self, *, last: bool) -> tuple[float, float] | None:
        """Return the interval of the ratio; None where the data give none."""
        middle = self.estimate
        low = edge(lambda ratio: self.is_above(ratio, last=last), middle, 0.0)
        high = edge(lambda ratio: self.is_below(ratio, last=last), middle, 16 * middle + 16)
        return (low, high) if high < 16 * middle + 16 else None

    def missing(self) -> float:
        """Return the factor on the number of launches with which the estimate would be proved; infinite without."""
        gain = 1 - self.estimate
        if gain <= 0:
            return inf
        _, squares = self._score(self._new_body / self._old_body, 0.0)
        body = self._last_limit * sqrt(squares) * self._scale / self.launches
        tails = tails_most(self._new, self._old, 1.0) - self._new.mean + self._old.mean
        # The body's error falls with the root of the number; that of the tails with the number, as few were seen.
        root = (body + sqrt(body * body + 4 * gain * tails)) / (2 * gain)
        return max(1.0, root * root)

    def _score(self, ratio: float, tails: float) -> tuple[float, float]:
        """Return the sum of the blocks' scores and of their squares, in units of their typical magnitude."""
        scores = [block.launches * (block.new - ratio * block.old + tails) for block in self._blocks]
        magnitudes = sorted(map(abs, scores))
        self._scale = SCALE_OF_MEDIAN * magnitudes[len(magnitudes) // 2] or magnitudes[-1] or 1.0
        scores = [score / self._scale for score in scores]
        return sum(scores), sum(score * score for score in scores)

    def _proved(self, total: float, squares: float, *, last: bool) -> bool:
        if last and squares > 0 and -total / sqrt(squares) >= self._last_limit:
            return True
        return log_e_value(total, squares) >= self._log_limit


def log_e_value(total: float, squares: float) -> float:
    """Return the logarithm of the evidence that scores with this sum and sum of squares lie below zero."""
    spread = squares + MIXTURE
    scaled = -total / sqrt(spread)
    if scaled < FAR_BELOW:  # 0.5 * scaled**2 and the logarithm of the mass would cancel out
        return log(sqrt(2 / pi) / -scaled) + 0.5 * log(MIXTURE / spread)
    return 0.5 * scaled * scaled + log(erfc(-scaled / sqrt(2))) + 0.5 * log(MIXTURE / spread)


def least_total(squares: float, log_limit: float) -> float:
    """Return the sum of scores with these squares, without its sign, whose e-value is about `log_limit`."""
    spread = squares + MIXTURE
    return sqrt(2 * spread * max(0.0, log_limit - log(2) + 0.5 * log(spread / MIXTURE)))


def edge(is_excluded: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the ratio nearest to the estimate that the data exclude; `outside` if they exclude none."""
    if not is_excluded(outside):
        return outside
    while abs(outside - inside) > 1e-5 * max(abs(inside), 1e-9):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if is_excluded(middle) else (middle, outside)
    return outside
