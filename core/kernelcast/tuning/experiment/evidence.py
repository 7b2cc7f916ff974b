"""Evidence about the mean cost of a launch: e-values of counterbalanced blocks, and a bound of long launches.

The judge is to know the mean time of an item, and rare long launches can decide it that nobody has seen yet. So times
are taken apart. The *body* of a launch is its time up to a limit, in typical launches; the *tail* is what is above it.

The body: each block's order is drawn by a fair coin that is independent of the noise, so under the null a block's
contrast is as likely positive as negative: drift, load with a period, autocorrelation. For scores x with symmetric
signs, exp(a*sum(x) - a**2*sum(x**2)/2) is a supermartingale for every a, and so is its mean over a half-normal
distribution of a > 0. That mean is the e-value: under the null it exceeds 1/alpha at any analysis, ever, with
probability at most alpha. The last analysis, at a number of blocks that no measurement has influenced, has a sharper
test: it compares the sum of the scores with a normal distribution of the same variance. Each may keep a useless
candidate with the probability `ERROR`. Scores are not cut, because the mean is asked for; where the arms have noise of
different shapes, signs are symmetric only about, which the bounded body keeps harmless.

The tail: from `MANY_EVENTS` long launches on, scores are those of whole times, so that a pause of both arms is noise as
any other, also where pauses cluster. While few were seen, their number is Poisson's, and its exact upper bound times
the longest launch that is reckoned with (`Rules.worst`) bounds their cost.

Both together: a useless candidate is kept only if its body seems fast *and* few of its long launches were seen. These
are independent, so the error is shared: for each rate of long launches, the probability of seeing so few, times that of
such a body, is at most `ERROR`. Example: a rate of which no launch is seen with probability 0.1 must be excluded by the
body with an error of 0.05.

Sources: de la Pena, A General Class of Exponential Inequalities for Martingales and Ratios, Annals of Probability 27
(1999), lemma 6.1; Howard et al., Time-uniform Chernoff bounds, Probability Surveys 17 (2020), section 5 (mixtures);
Garwood, Fiducial Limits for the Poisson Distribution, Biometrika 28 (1936).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import erfc, exp, inf, log, pi, sqrt
from operator import mul
from statistics import NormalDist
from typing import Final, NamedTuple

MIXTURE: Final = 4.0
"""Weight of small effects in the bound: it is tightest where the scores' squares add up to a few times this."""
SCALE_OF_MEDIAN: Final = 1.4826
"""Standard deviation over median magnitude, of normal noise."""
FAR_BELOW: Final = -30.0
"""Standard deviations from which on the normal distribution is replaced by its asymptotic form."""
ERROR: Final = 0.005
"""Probability of keeping a candidate that is not faster, by all analyses together and once more by the last one."""
LOG_ERROR: Final = -log(ERROR)
ERROR_DEVIATIONS: Final = -NormalDist().inv_cdf(ERROR)
ERROR_PARTS: Final = 8
"""Divisions of the error between the body and long launches that were not seen, at which both are tested."""
MANY_EVENTS: Final = 8
"""Long launches from which on their own sum says what they cost."""
MOST_DEVIATIONS: Final = 20.0
"""Standard deviations times the root of two beyond which the normal distribution has no value above 0."""
MOST_LAUNCHES: Final = 1e7
"""Launches beyond which it makes no difference how many are missing."""
BODY_SHARE: Final = 0.2
"""The body ends at this share of the way from a typical launch to the longest one that is reckoned with."""


class Block(NamedTuple):
    """Means of a block's launches, in typical launches of the kept configuration, and the candidate's launches.

    Attributes:
        new: Mean body of the candidate.
        old: Mean body of the kept configuration.
        new_tail: Mean of what the candidate's launches take above the limit of the body.
        old_tail: The same of the kept configuration.
        launches: Compared launches of the candidate.
    """

    new: float
    old: float
    new_tail: float
    old_tail: float
    launches: int


class Tail:
    """Long launches of one arm.

    Args:
        excess: What each of its launches takes above the limit of the body, in typical launches; 0 for most.
        worst: Longest launch that is reckoned with, in typical launches.

    Attributes:
        launches: Launches of the arm.
        events: Long ones of them.
        mean: Mean cost a launch, as measured.
        error: Error of the mean, for many long launches.
        has_many: Whether so many were seen that their own sum says what they cost.
        variance: Variance of the mean of all that long launches take above a typical one, for many.
    """

    def __init__(self, excess: Sequence[float], worst: float) -> None:
        long = [time for time in excess if time > 0]
        self.launches = launches = max(1, len(excess))
        self.events = events = len(long)
        self.has_many = events >= MANY_EVENTS
        self.mean = sum(long) / launches
        # As of events of one size, whose number has an exact bound; the normal one is too low for a dozen events.
        self.error = poisson_deviations(events) * sqrt(sum(time * time for time in long)) / launches
        below_limit = body_limit(worst) - 1
        self.variance = sum((time + below_limit) ** 2 for time in long) / launches**2 if self.has_many else 0.0
        longest = max(long, default=0.0)
        self._longer = max(0.0, worst - 1 - below_limit - longest)
        self._longest = max(worst - 1, longest)

    def least(self) -> float:
        """Return the lower bound of the cost a launch."""
        return max(0.0, self.mean - self.error) if self.has_many else 0.0

    def most(self, log_chance: float) -> float:
        """Return the cost a launch at the rate of which so few long launches are seen with a probability.

        Where many were seen, it is their mean, and the rate is that of longer ones.

        Args:
            log_chance: Logarithm of one over the probability.
        """
        if self.has_many:
            return self.mean + log_chance / self.launches * self._longer
        return poisson_most(self.events, log_chance) / self.launches * self._longest


def body_limit(worst: float) -> float:
    """Return the limit of the body, in typical launches."""
    return 1 + BODY_SHARE * (worst - 1)


@lru_cache(maxsize=ERROR_PARTS * MANY_EVENTS)
def poisson_most(events: int, log_chance: float) -> float:
    """Return the expected number of events of which so few are seen with a probability of `exp(-log_chance)`."""
    low, high, error = float(events), events + 10 * sqrt(events + 1.0) + log_chance, exp(-log_chance)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        term = total = exp(-middle)
        for number in range(1, events + 1):
            term *= middle / number
            total += term
        low, high = (middle, high) if total > error else (low, middle)
    return high


def poisson_deviations(events: int) -> float:
    """Return the upper bound of the expected number of events, in standard deviations above the number seen.

    `poisson_most` at the permitted error, by a formula that holds for any number of events to 2 % (Garwood's bound as a
    quantile of chi-square, and its approximation by Wilson and Hilferty).
    """
    above = 1 + ERROR_DEVIATIONS * sqrt(events + 1) + (ERROR_DEVIATIONS**2 - 1) / 3
    return above / sqrt(max(1, events))


class Evidence:
    """All blocks of an analysis with the long launches of both arms.

    A ratio is the mean time of the candidate's launches over that of the kept ones.

    Args:
        blocks: Mean bodies; at least one block.
        new: Long launches of the candidate.
        old: Those of the kept configuration.
        level: 1 minus twice the error of a proof that the candidate is slower, over all analyses together. That of a
            proof that it is faster is smaller, so an interval covers the ratio at least with this probability.

    Attributes:
        blocks: Number of blocks.
        launches: Compared launches of the candidate.
    """

    def __init__(self, blocks: Sequence[Block], new: Tail, old: Tail, level: float) -> None:
        self._blocks, self._new, self._old = blocks, new, old
        self._log_limit = log(4 / (1 - level))
        self._last_limit = NormalDist().inv_cdf(1 - (1 - level) / 4)
        self.blocks = len(blocks)
        self._block_launches = [block.launches for block in blocks]
        self.launches = launches = sum(self._block_launches)

        def mean(of: Callable[[Block], float]) -> float:
            return sum(of(block) * block.launches for block in blocks) / launches

        self._new_body, self._old_body = mean(lambda block: block.new), mean(lambda block: block.old)
        self._new_tail, self._old_tail = mean(lambda block: block.new_tail), mean(lambda block: block.old_tail)
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
        return self._excludes(ratio, last=False) or (last and self._excludes(ratio, last=True))

    @property
    def is_body_below(self) -> bool:
        """Whether the bodies alone prove that the candidate is faster."""
        return log_e_value(*self._score(self._differences(1.0))) >= LOG_ERROR

    @property
    def needs_stays(self) -> bool:
        """Whether long launches that were not seen are what is missing most to prove that the candidate is faster."""
        _, squares = self._score(self._differences(1.0))
        # What each further launch would take from a bound: that of the tails falls with 1 / n, that of the body with
        # its root.
        body = least_total(squares, LOG_ERROR) * self._scale / self.launches
        return not self._new.events and self._new.most(LOG_ERROR) / self._new.launches > body / (2 * self.launches)

    def is_above(self, ratio: float, *, last: bool) -> bool:
        """Whether the data prove that the true ratio is higher, launches that were not seen left out."""
        tails = self._new.least() - ratio * (self._old.mean + self._old.error)
        total, squares = self._score(self._differences(ratio), tails)
        if last and squares > 0 and total / sqrt(squares) >= self._last_limit:
            return True
        return log_e_value(-total, squares) >= self._log_limit

    def bounds(self, *, last: bool) -> tuple[float, float] | None:
        """Return the interval of the ratio; None where the data give none."""
        middle = self.estimate
        low = edge(lambda ratio: self.is_above(ratio, last=last), middle, 0.0)
        high = edge(lambda ratio: self.is_below(ratio, last=last), middle, 16 * middle + 16)
        return (low, high) if high < 16 * middle + 16 else None

    def missing(self) -> float:
        """Return the factor on the number of launches with which the estimate would be proved; infinite without."""
        if self.estimate >= 1:
            return inf
        low, high = 1.0, 2.0
        while not self._excludes(1.0, last=True, more=high) and high < MOST_LAUNCHES / self.launches:
            low, high = high, 2 * high
        while high - low > 0.01 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._excludes(1.0, last=True, more=middle) else (middle, high)
        return high

    def _excludes(self, ratio: float, *, last: bool, more: float = 1.0) -> bool:
        """Whether a test excludes a ratio and all above: the e-value, or the normal test of the last analysis.

        Args:
            ratio: The ratio.
            last: Use the normal test.
            more: Factor on the number of launches, with the same times.
        """
        # At each part of the error, the body must exclude the ratio with what the chance of unseen long launches leaves.
        # The normal test is one of a single analysis: there, only that *no* long launch was seen can share its error.
        is_shared = not last or self._new.has_many or not self._new.events
        evidence = log_normal if last else log_e_value
        differences = self._differences(ratio, with_tails=self._new.has_many)
        for part in range(0 if is_shared else ERROR_PARTS - 1, ERROR_PARTS):
            unseen = (part + 1) / ERROR_PARTS * LOG_ERROR
            total, squares = self._score_with_tails(differences, ratio, unseen, more)
            if evidence(total, squares) < LOG_ERROR - (part / ERROR_PARTS * LOG_ERROR if is_shared else 0.0):
                return False
        return True

    def _score_with_tails(
        self, differences: Sequence[float], ratio: float, unseen: float, more: float
    ) -> tuple[float, float]:
        """Return `_score` with long launches that were seen, and those that were not with a probability."""
        new, old = self._new, self._old
        bound = new.most(unseen) - ratio * (old.mean if new.has_many else old.least())
        measured = new.mean - ratio * old.mean
        tails = measured + (bound - measured) / more
        if not new.has_many:
            total, squares = self._score(differences, tails)
            return more * total, more * squares
        # Those of looks and stays are not in the blocks.
        total, squares = self._score(differences, tails - self._new_tail + ratio * self._old_tail)
        # The candidate's events alone have a skewed distribution, whose bound is exact; equal ones of both cancel.
        variance = new.variance + ratio * ratio * old.variance
        skewed = max(0.0, new.variance - ratio * ratio * old.variance) / variance
        events = new.events + (old.events if old.has_many else 0)
        factor = 1 + skewed * max(0.0, poisson_deviations(events) / ERROR_DEVIATIONS - 1)
        squares += (factor * factor - 1) * variance * (self.launches / self._scale) ** 2
        return more * total, more * squares

    def _differences(self, ratio: float, *, with_tails: bool = False) -> list[float]:
        """Return each block's difference of the arms, times its launches: of whole times, or of the bodies alone."""
        if with_tails:
            return [
                launches * (new + new_tail - ratio * (old + old_tail))
                for new, old, new_tail, old_tail, launches in self._blocks
            ]
        return [block.launches * (block.new - ratio * block.old) for block in self._blocks]

    def _score(self, differences: Sequence[float], tails: float = 0.0) -> tuple[float, float]:
        """Return the sum of the blocks' scores and of their squares, in units of their typical magnitude.

        Args:
            differences: Those of the blocks at the ratio to exclude.
            tails: What is added to the candidate's mean.
        """
        scores = [
            difference + tails * launches
            for difference, launches in zip(differences, self._block_launches, strict=True)
        ]
        magnitudes = sorted(map(abs, scores))
        self._scale = scale = SCALE_OF_MEDIAN * magnitudes[len(magnitudes) // 2] or magnitudes[-1] or 1.0
        return sum(scores) / scale, sum(map(mul, scores, scores)) / (scale * scale)


def log_normal(total: float, squares: float) -> float:
    """Return the logarithm of one over the probability of a sum of scores as low as this, if it is normal."""
    if squares <= 0:
        return 0.0
    return -log(0.5 * erfc(min(MOST_DEVIATIONS, -total / sqrt(2 * squares))))


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
