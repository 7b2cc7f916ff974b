"""Metrics that the predictor writes to `kernelcast.forecasts`: forecasts, predicted degradation, issued hints.

`predictor/publish.py` makes samples of these rows; the bridge exposes them. A *threshold* is the limit of the series;
it *passes* when the value crosses it.
"""

from typing import Final

from kernelcast.wire.catalogue.kernel import KERNEL_LABELS
from kernelcast.wire.catalogue.model import Kind
from kernelcast.wire.catalogue.naming import kafka_metric

SUBJECT_LABELS: Final = (*KERNEL_LABELS, "metric")
"""Labels of a forecast's subject: those of its series, and `metric`, the series' Prometheus name."""

_PREDICTOR: Final = "predictor"

FORECAST_VALUE: Final = kafka_metric(
    "kernelcast.forecast.value",
    Kind.GAUGE,
    "Forecast of a series, in the series' own unit, at the horizon in the label; bound is mean, lower or upper.",
    unit="",
    labels=(*SUBJECT_LABELS, "horizon", "bound"),
    source=_PREDICTOR,
)
FORECAST_COVERAGE: Final = kafka_metric(
    "kernelcast.forecast.coverage",
    Kind.GAUGE,
    "Share of past observations that fell inside the interval forecast for them; the interval is a 95 % one.",
    unit="1",
    labels=("metric",),
    source=_PREDICTOR,
)
JUDGED_SERIES: Final = kafka_metric(
    "kernelcast.forecast.judged_series",
    Kind.GAUGE,
    "Live series with a limit whose history suffices to say whether a breach is probable; while it is 0, the absence "
    "of a prediction says nothing.",
    unit="",
    labels=(),
    source=_PREDICTOR,
)
DEGRADATION_PROBABILITY: Final = kafka_metric(
    "kernelcast.degradation.probability",
    Kind.GAUGE,
    "Probability that the series crosses its threshold within the horizon in the label, with the cause it points to.",
    unit="1",
    labels=(*SUBJECT_LABELS, "horizon", "cause"),
    source=_PREDICTOR,
)
DEGRADATION_TIME: Final = kafka_metric(
    "kernelcast.degradation.time_to_threshold",
    Kind.GAUGE,
    "Time until the series crosses its threshold: the quantile in the label of the simulated first passages; "
    "absent where that share of paths never crosses within the horizon.",
    unit="s",
    labels=(*SUBJECT_LABELS, "cause", "quantile"),
    source=_PREDICTOR,
)
DEGRADATION_THRESHOLD: Final = kafka_metric(
    "kernelcast.degradation.threshold",
    Kind.GAUGE,
    "The threshold that the prediction is about, in the series' own unit.",
    unit="",
    labels=SUBJECT_LABELS,
    source=_PREDICTOR,
)
DEGRADATION_ALERT: Final = kafka_metric(
    "kernelcast.degradation.alert",
    Kind.GAUGE,
    "1 while the predictor's alert rule fires for the series, with its hold and its hysteresis. state is predicted "
    "before the threshold is crossed and passed from then on, until the series is back; absent without an alert.",
    unit="",
    labels=(*SUBJECT_LABELS, "cause", "state"),
    source=_PREDICTOR,
)
DEGRADATION_CROSSED: Final = kafka_metric(
    "kernelcast.degradation.crossed_timestamp",
    Kind.GAUGE,
    "When the series crossed its threshold, in Unix time; from then on until its alert ends, absent before.",
    unit="s",
    labels=(*SUBJECT_LABELS, "cause"),
    source=_PREDICTOR,
)
FORECAST_TIME: Final = kafka_metric(
    "kernelcast.forecast.timestamp",
    Kind.GAUGE,
    "End of the newest observations that the forecast rests on, in Unix time; time() less this is the forecast's age.",
    unit="s",
    labels=SUBJECT_LABELS,
    source=_PREDICTOR,
)
HINTS_ISSUED: Final = kafka_metric(
    "kernelcast.hint.issued",
    Kind.COUNTER,
    "Hints written to Kafka, by the rule that gave them.",
    unit="{hint}",
    labels=("program", "tunable", "rule"),
    source=_PREDICTOR,
)
HINT_OPEN: Final = kafka_metric(
    "kernelcast.hint.open_timestamp",
    Kind.GAUGE,
    "When a hint was issued that is open, in Unix time: no program has kept or refused it yet. previous is the value "
    "that the tunable had; state is issued, trial (a program tries it) or approval (it waits for a person).",
    unit="s",
    labels=("program", "tunable", "device_model", "value", "previous", "rule", "state", "hint_id"),
    source=_PREDICTOR,
)
HINT_EXPECTED: Final = kafka_metric(
    "kernelcast.hint.expected_ratio",
    Kind.GAUGE,
    "Kernel time with the value of an open hint over the time without, as it is expected; bound is mean, lower or "
    "upper. Absent while the gain is unknown.",
    unit="1",
    labels=("program", "tunable", "hint_id", "bound"),
    source=_PREDICTOR,
)
APPROVAL_PENDING: Final = kafka_metric(
    "kernelcast.hint.approval_pending_timestamp",
    Kind.GAUGE,
    "When a hint was proposed that changes results and waits for a person, in Unix time; absent without one.",
    unit="s",
    labels=("program", "tunable", "device_model", "value", "rule", "hint_id"),
    source=_PREDICTOR,
)
DIAGNOSIS: Final = kafka_metric(
    "kernelcast.diagnosis.signal",
    Kind.GAUGE,
    "What to change in a program: a rule that holds for it on a GPU; the value is that of the signal which decides.",
    unit="",
    labels=("Hostname", "UUID", "GPU_I_ID", "program", "rule", "signal"),
    source=_PREDICTOR,
)
DIAGNOSIS_MISSING: Final = kafka_metric(
    "kernelcast.diagnosis.missing_signal",
    Kind.GAUGE,
    "1 for each signal that is not measured and without which a rule about the program cannot be judged.",
    unit="",
    labels=("Hostname", "UUID", "GPU_I_ID", "program", "signal"),
    source=_PREDICTOR,
)

ROWS: Final = (
    FORECAST_VALUE,
    FORECAST_COVERAGE,
    JUDGED_SERIES,
    FORECAST_TIME,
    DEGRADATION_PROBABILITY,
    DEGRADATION_TIME,
    DEGRADATION_THRESHOLD,
    DEGRADATION_ALERT,
    DEGRADATION_CROSSED,
    HINTS_ISSUED,
    HINT_OPEN,
    HINT_EXPECTED,
    APPROVAL_PENDING,
    DIAGNOSIS,
    DIAGNOSIS_MISSING,
)
