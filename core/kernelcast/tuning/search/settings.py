"""Settings of the guided search."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the guided search; the defaults were chosen on three of seven recorded spaces (benchmarks/tuning).

    Attributes:
        spread: Configurations, the start included, that are chosen to differ, before the model proposes.
        points: Most observations in the model.
        pool: Most candidates.
        random: Random candidates that join for each suggestion.
        screened: Neighbours of one good configuration that join for each suggestion.
        elites: Best configurations whose neighbours join.
        niche_values: A parameter with at most this many values keeps the best configuration of each value as an elite.
        switch_values: A parameter with at most this many values is a switch: the best change with it, all at once.
        switch_every: One of this many suggestions changes a switch of a good configuration, whatever the model expects.
        switched: Good configurations of which one is chosen for that.
        exposure: Exponent of a candidate's expected slowdown that divides its expected improvement, at first.
        late_exposure: The same after `late` observations.
        failing_cost: Weight of a candidate's probability of failing, which lowers what its measurement is worth.
        explore_every: One of this many suggestions uses the first exponent throughout, unless it changes a switch: in
            a space with a switch hardly any does, because `switch_every` divides this number.
        late: Observations over which the exponents change from the first to the second.
        failing_quantile: Quantile of the times that a failing configuration counts as.
        learning_points: Observations from which the weights of the similarity are learnt.
        learning_until: Observations after which the weights stay.
    """

    spread: int = 8
    points: int = 64
    pool: int = 52
    random: int = 1
    screened: int = 2
    elites: int = 8
    niche_values: int = 5
    switch_values: int = 3
    switch_every: int = 5
    switched: int = 5
    exposure: float = 1.5
    late_exposure: float = 5.0
    explore_every: int = 10
    failing_cost: float = 6.0
    late: int = 60
    failing_quantile: float = 0.75
    learning_points: int = 24
    learning_until: int = 120
