"""Settings of the anomaly detector, with the reasons for their defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AnomalySettings:
    """Settings that hold for every series. Weights are shares of the newest value in a moving mean.

    Attributes:
        false_alarms_per_day: Expected false alarms of one feature at score 1; 1 is a probability per interval of this
            rate divided by the intervals of a day.
        smallest_ratio: A deviation below this share of the level never counts; 0 makes the score independent of
            the zero point of the unit.
        warm_up: Values before the first score above 0.
        warm_up_days: Days before the first score above 0, for series whose `warm_up` values pass sooner.
        rhythm_days: First days, in which only values outside the range of the earlier ones count, except for
            deviations from a season.
        first_day: Share by which the improbability needed is higher at the first value; it falls to 0 within a day.
        cycles: Seasons that a series must have had before deviations from its profile count.
        notice: Score at which an episode opens; its onset is then below 1.
        hysteresis: An episode goes on while the score is at least this.
        calm: An episode ends after this many rows below `hysteresis`.
        refractory: Rows after an onset in which no other onset is reported; the score stays visible.
        quantile: Values of a feature above this quantile form the tail that the model learns.
        record_margin: An episode opens only where a feature exceeds its own record by this share, because an
            excursion that was seen before is normal for the series.
        record_decay: Share of a record that is forgotten per row.
        familiar: Factor on evidence for an alarm where the value lies in the range of the earlier ones: a known state,
            such as a job that starts or ends, needs more evidence.
        explained: A season whose deviations spread by less than this share of those from the level explains the series.
        unexplained: As `familiar`, for deviations from a season that does not explain the series.
        isolated: Factor on the evidence of the first value beyond its quantile: alone it is a spike, and series with
            heavy tails have spikes.
        isolated_first: The factor `isolated` is smaller by this share at the first value, and grows to its size within
            `rhythm_days`: spikes that are rarer than that were not seen yet.
        largest_residual: Distance from the slow level, and from the season, that counts in the short means, in standard
            deviations: a single spike is not a shift.
        fast: Weight of the level from which jumps are measured.
        short: Weight of the mean that is compared with the slow level; three values after a step it has moved by 42 %.
        slow: Weight of the slow level.
        seasonal_short: Weight of the mean of deviations from the season.
        frozen: Factor on all learning inside an episode.
        adoption: Rows after which an episode's values are learnt at full speed: the new state is then normal.
            The episode goes on only while the score is at least `notice`.
    """

    false_alarms_per_day: float = 0.035
    smallest_ratio: float = 0.03
    warm_up: int = 100
    warm_up_days: float = 1 / 4
    rhythm_days: float = 2.0
    first_day: float = 0.3
    cycles: int = 3
    notice: float = 0.77
    hysteresis: float = 0.5
    calm: int = 12
    refractory: int = 48
    quantile: float = 0.95
    record_margin: float = 0.1
    record_decay: float = 5e-5
    familiar: float = 0.87
    explained: float = 0.8
    unexplained: float = 0.95
    isolated: float = 0.9
    isolated_first: float = 0.1
    largest_residual: float = 8.0
    fast: float = 1 / 6
    short: float = 1 / 6
    slow: float = 1 / 100
    seasonal_short: float = 0.15
    frozen: float = 0.1
    adoption: int = 288
