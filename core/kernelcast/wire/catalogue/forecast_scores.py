"""Metrics with which the predictor scores itself, by class of metric and horizon; written to `kernelcast.forecasts`."""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric
from kernelcast.wire.catalogue.naming import kafka_metric

CLASS_LABELS: Final = ("class",)
CELL_LABELS: Final = ("class", "horizon")
"""`class` is temperature, memory, utilisation, kernel or other; `horizon` a duration such as 1h."""


def _score(name: str, help: str, *labels: str, unit: str = "") -> Metric:  # noqa: A002  the field's name
    return kafka_metric(f"kernelcast.forecast.{name}", Kind.GAUGE, help, unit=unit, labels=labels, source="predictor")


SCORED_CLAIMS: Final = _score(
    "scored_claims",
    "Forecasts that were compared with what came: kind is interval or breach. A series has one at a time for each "
    "horizon; above 10,000 in a class and horizon, all sums of the scores are halved.",
    *CELL_LABELS,
    "kind",
)
INTERVAL_COVERAGE: Final = _score(
    "interval_coverage",
    "Share of values inside the central interval that was forecast for them; level is its nominal coverage.",
    *CELL_LABELS,
    "level",
    unit="1",
)
PINBALL_LOSS: Final = _score(
    "pinball_loss",
    "Mean quantile loss over seven quantiles, in the series' own unit; twice it approximates the CRPS.",
    *CELL_LABELS,
)
SKILL: Final = _score(
    "skill",
    "1 less the mean absolute error relative to that of a naive forecast: reference is naive (the last value) or "
    "seasonal_naive. 0 is as good as it, 1 is perfect.",
    *CELL_LABELS,
    "reference",
)
BRIER_SCORE: Final = _score("brier_score", "Mean squared error of breach probabilities; 0 is perfect.", *CELL_LABELS)
BRIER_SKILL: Final = _score(
    "brier_skill",
    "1 less the Brier score relative to that of the base rate; absent where all outcomes were equal.",
    *CELL_LABELS,
)
RELIABILITY_CLAIMS: Final = _score(
    "reliability_claims", "Breach probabilities with an outcome, by bin of the probability.", *CELL_LABELS, "bin"
)
RELIABILITY_SAID: Final = _score(
    "reliability_said", "Mean breach probability that was published, by bin.", *CELL_LABELS, "bin", unit="1"
)
RELIABILITY_CAME: Final = _score(
    "reliability_came",
    "Share of published breach probabilities after which the breach came, by bin; calibrated if it equals the "
    "mean that was published.",
    *CELL_LABELS,
    "bin",
    unit="1",
)
ALERT_LEAD: Final = _score(
    "alert_lead", "Median time from an alert to the passing of its limit.", *CLASS_LABELS, unit="s"
)
ALERT_PRECISION: Final = _score(
    "alert_precision", "Share of alerts after which the limit was passed within a day.", *CLASS_LABELS, unit="1"
)
ANNOUNCED_BREACHES: Final = _score(
    "announced_breaches", "Share of passed limits that an alert had announced.", *CLASS_LABELS, unit="1"
)
FALSE_ALARMS: Final = _score(
    "false_alarms_per_gpu_day", "Alerts without a breach within a day, for each day of each GPU.", *CLASS_LABELS
)
ABSTAINED: Final = _score(
    "abstained_claims", "Claims about series that were not made, by reason.", *CLASS_LABELS, "reason"
)

ROWS: Final = (
    SCORED_CLAIMS,
    INTERVAL_COVERAGE,
    PINBALL_LOSS,
    SKILL,
    BRIER_SCORE,
    BRIER_SKILL,
    RELIABILITY_CLAIMS,
    RELIABILITY_SAID,
    RELIABILITY_CAME,
    ALERT_LEAD,
    ALERT_PRECISION,
    ANNOUNCED_BREACHES,
    FALSE_ALARMS,
    ABSTAINED,
)
