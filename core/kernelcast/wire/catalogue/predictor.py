"""Metrics of the predictor itself, on its `/metrics`; they do not travel through Kafka.

The predictor makes counters and gauges from these rows (`predictor/measures.py`). Panels and rules name them.
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric

_PREDICTOR: Final = "predictor"


def _own(name: str, kind: Kind, help: str, *labels: str) -> Metric:  # noqa: A002  the field's name
    return Metric(f"kernelcast_predictor_{name}", kind, help, labels=labels, source=_PREDICTOR)


POINTS: Final = _own("points_total", Kind.COUNTER, "Points read from Kafka, by topic.", "topic")
MESSAGES: Final = _own(
    "messages_total",
    Kind.COUNTER,
    "Messages read from Kafka, by topic and by what became of them: used, empty or unusable.",
    "topic",
    "outcome",
)
SERIES: Final = _own("series", Kind.GAUGE, "Series that have a window.")
SERIES_REFUSED: Final = _own(
    "series_refused_total", Kind.COUNTER, "Series turned away because predictor.max_series was reached."
)
IGNORED_POINTS: Final = _own(
    "ignored_points_total", Kind.COUNTER, "Points that no window takes: foreign metrics, deltas, refused series."
)
TUNABLES: Final = _own("tunables", Kind.GAUGE, "Tunables that running programs have registered.")
SWEEPS: Final = _own("sweeps_total", Kind.COUNTER, "Sweeps over all windows.")
SWEEP_SECONDS: Final = _own("sweep_duration_seconds", Kind.GAUGE, "Time that the last sweep took.")
SWEEP_FAILURES: Final = _own("sweep_failures_total", Kind.COUNTER, "Sweeps that ended in an error.")
FLAGGED: Final = _own("flagged_series", Kind.GAUGE, "Series that the last sweep flagged.")
RAISED: Final = _own("raised_series", Kind.GAUGE, "Series with a forecast after the last sweep.")
FITS: Final = _own(
    "fits_total",
    Kind.COUNTER,
    "Forecasts made, by model and outcome.",
    "model",
    "outcome",
)
FIT_SECONDS: Final = _own("fit_seconds_total", Kind.COUNTER, "Time spent on fitting and simulating.")
DEEP_FITS: Final = _own(
    "deep_fits_total",
    Kind.COUNTER,
    "Models of statsmodels, by model and outcome: fitted, not_converged, failed or not_fittable (constant or short).",
    "model",
    "outcome",
)
DEEP_FIT_SECONDS: Final = _own(
    "deep_fit_seconds_total", Kind.COUNTER, "Processor time of worker processes that fit models of statsmodels."
)
DEEP_SHED: Final = _own(
    "deep_shed_total",
    Kind.COUNTER,
    "Windows that were not fitted or whose models were not used: over_budget, queue_full, hung, ended or late.",
    "reason",
)
DEEP_WORKER_STARTS: Final = _own(
    "deep_worker_starts_total", Kind.COUNTER, "Worker processes started, to fit models of statsmodels."
)
DEEP_SERIES: Final = _own("deep_series", Kind.GAUGE, "Forecast series that have a model of statsmodels.")
DEEP_USED_SERIES: Final = _own(
    "deep_used_series", Kind.GAUGE, "Series whose forecast uses a model of statsmodels, as it has been better."
)
ABSTENTIONS: Final = _own(
    "abstentions_total",
    Kind.COUNTER,
    "Evaluations of series without a prediction, by reason; over_budget: without a new forecast.",
    "reason",
)
REGIMES: Final = _own(
    "regime_changes_total", Kind.COUNTER, "Series for which a new regime began (a deploy) instead of an alarm."
)
UNSCORED: Final = _own(
    "unscored_forecasts_total", Kind.COUNTER, "Forecasts that could not be scored: no value came, or too many wait."
)
HINTS: Final = _own("hints_total", Kind.COUNTER, "Hints written to Kafka, by rule.", "rule")
HINTS_WITHHELD: Final = _own(
    "hints_withheld_total", Kind.COUNTER, "Proposals that did not become a hint, by reason.", "reason"
)
SNAPSHOT_TIME: Final = _own(
    "snapshot_timestamp_seconds", Kind.GAUGE, "When windows were last written to Kafka, in Unix time; 0 before."
)
SNAPSHOT_FAILURES: Final = _own(
    "snapshot_failures_total", Kind.COUNTER, "Snapshots that were not used, by reason.", "reason"
)
RESTORED: Final = _own("restored_series_total", Kind.COUNTER, "Series whose windows came from a snapshot.")
LAG: Final = _own("lag_messages", Kind.GAUGE, "Messages that wait on Kafka, by topic.", "topic")
SKIPPED: Final = _own(
    "skipped_messages_total", Kind.COUNTER, "Messages skipped because the predictor was too far behind.", "topic"
)
FINDING_LABELS: Final = (
    *("finding_id", "scope", "rack", "Hostname", "UUID", "gpu", "GPU_I_ID", "program", "rank", "kernel"),
    *("metric", "cause", "state", "urgency"),
)
"""Labels of a finding: what it is about, the series that shows it best, and how urgent it is; empty where unknown."""
FINDING_SINCE: Final = _own(
    "finding_since_timestamp_seconds",
    Kind.GAUGE,
    "Each finding that lasts: when its limit was passed (state passed) or when it began, in Unix time. urgency is "
    "page, ticket, held (a page beyond the budget) or posted (the predictor posts it to Alertmanager itself).",
    *FINDING_LABELS,
)
FINDING_VALUE: Final = _own(
    "finding_value", Kind.GAUGE, "Newest value of the series that shows a finding best, in its unit.", *FINDING_LABELS
)
FINDING_LIMIT: Final = _own(
    "finding_limit",
    Kind.GAUGE,
    "Limit or reference of a finding, in the unit of its series; absent where there is none.",
    *FINDING_LABELS,
)
FINDING_EXPECTED: Final = _own(
    "finding_expected_timestamp_seconds",
    Kind.GAUGE,
    "When the limit of a predicted finding will have been reached with the probability in the label, in Unix time; "
    "absent beyond the horizon.",
    *FINDING_LABELS,
    "quantile",
)
FINDINGS_TIME: Final = _own(
    "findings_timestamp_seconds",
    Kind.GAUGE,
    "Time up to which findings are known, in Unix time; absent after a start until saved findings are there.",
)
FINDINGS_HELD: Final = _own(
    "findings_held", Kind.GAUGE, "Findings whose page is held back because the fleet's budget of pages is spent."
)
FINDING_CHANGES: Final = _own(
    "finding_changes_total", Kind.COUNTER, "Findings written to Kafka, by the state that they were in.", "state"
)
PAGES: Final = _own("pages_total", Kind.COUNTER, "Findings that became a page.")
CANDIDATES_REFUSED: Final = _own(
    "candidates_refused_total",
    Kind.COUNTER,
    "Candidate findings refused because predictor.alarms.max_series was reached.",
)
MARKS: Final = _own("finding_marks", Kind.GAUGE, "Findings marked in the last 30 days, by verdict.", "verdict")
PRECISION: Final = _own(
    "finding_precision_ratio",
    Kind.GAUGE,
    "Share of the findings marked in the last 30 days that were repaired or accepted; absent without marks.",
    "source",
)
BASELINES: Final = _own(
    "baselines", Kind.GAUGE, "Baselines of kernels known from all nodes, by kernel, configuration and GPU model."
)
BASELINE_REFERENCES: Final = _own(
    "baseline_references",
    Kind.GAUGE,
    "Kernels on GPUs that are compared with at least three other nodes.",
)
BASELINE_PARTS: Final = _own(
    "baseline_parts_total",
    Kind.COUNTER,
    "Baselines of a kernel on the healthy GPUs of one node that this predictor has shared, new or changed.",
)
BASELINE_RECORDS: Final = _own(
    "baseline_records_total",
    Kind.COUNTER,
    "Records that this predictor wrote to kernelcast.baselines: written, or withdrawn because no node renews it.",
    "outcome",
)
BASELINES_REFUSED: Final = _own(
    "baselines_refused_total",
    Kind.COUNTER,
    "Shared baselines that were refused: unusable, under another key, from the future, too long, or too many (full).",
    "reason",
)
QUERIES: Final = _own(
    "prometheus_queries_total",
    Kind.COUNTER,
    "Queries to Prometheus, without Kafka, by outcome: answered, throttled (429), refused, or unreachable.",
    "outcome",
)
QUERY_SECONDS: Final = _own("prometheus_query_seconds_total", Kind.COUNTER, "Time that Prometheus took for answers.")
PROMETHEUS_POINTS: Final = _own("prometheus_points_total", Kind.COUNTER, "Points read from Prometheus, without Kafka.")
READ_TIME: Final = _own(
    "prometheus_read_timestamp_seconds",
    Kind.GAUGE,
    "End of the newest interval read from Prometheus, in Unix time; absent before the first one.",
)
MISSED: Final = _own(
    "prometheus_missed_intervals_total",
    Kind.COUNTER,
    "Intervals of single series without a value: Prometheus has no sample (no_sample), or did not answer for longer "
    "than a window (outage).",
    "reason",
)
REFILLED: Final = _own(
    "prometheus_refilled_ratio",
    Kind.GAUGE,
    "Share of the series whose past was asked for since the start: two days of blocks (days), five weeks of hours.",
    "part",
)
FOREIGN: Final = _own(
    "prometheus_foreign_series", Kind.GAUGE, "Series under admitted names that name neither a GPU nor a program."
)
WITHOUT_LIMIT: Final = _own(
    "gpus_without_limit",
    Kind.GAUGE,
    "GPUs whose slowdown temperature is known to neither their exporter, the settings nor the package, by model.",
    "modelName",
)
CANDIDATE_SINCE: Final = _own(
    "candidate_since_timestamp_seconds",
    Kind.GAUGE,
    "Series that are part of a finding, or wait to be: since when, in Unix time. A predictor without Kafka serves it, "
    "and reads it back after a restart.",
    "series",
    "finding_id",
    "cause",
    "state",
    "severity",
)
FINDING_OPENED: Final = _own(
    "finding_opened_timestamp_seconds",
    Kind.GAUGE,
    "When a finding began, in Unix time, with what it is about. A predictor without Kafka serves it, and reads it back "
    "after a restart.",
    "finding_id",
    "scope",
    "unit",
    "cause",
    "paged",
)
FINDING_MARK: Final = _own(
    "finding_mark_timestamp_seconds",
    Kind.GAUGE,
    "When a person answered a finding, in Unix time, by each series of the finding, for 30 days. A predictor without "
    "Kafka serves it, and reads it back after a restart.",
    "finding_id",
    "verdict",
    "series",
)
ALERTS_POSTED: Final = _own(
    "alerts_posted_total", Kind.COUNTER, "Alerts posted to Alertmanager, without Kafka, by outcome.", "outcome"
)

ROWS: Final[tuple[Metric, ...]] = (
    POINTS,
    MESSAGES,
    SERIES,
    SERIES_REFUSED,
    IGNORED_POINTS,
    TUNABLES,
    SWEEPS,
    SWEEP_SECONDS,
    SWEEP_FAILURES,
    FLAGGED,
    RAISED,
    FITS,
    FIT_SECONDS,
    DEEP_FITS,
    DEEP_FIT_SECONDS,
    DEEP_SHED,
    DEEP_WORKER_STARTS,
    DEEP_SERIES,
    DEEP_USED_SERIES,
    ABSTENTIONS,
    REGIMES,
    UNSCORED,
    HINTS,
    HINTS_WITHHELD,
    SNAPSHOT_TIME,
    SNAPSHOT_FAILURES,
    RESTORED,
    LAG,
    SKIPPED,
    FINDING_SINCE,
    FINDING_VALUE,
    FINDING_LIMIT,
    FINDING_EXPECTED,
    FINDINGS_TIME,
    FINDINGS_HELD,
    FINDING_CHANGES,
    PAGES,
    CANDIDATES_REFUSED,
    MARKS,
    PRECISION,
    BASELINES,
    BASELINE_REFERENCES,
    BASELINE_PARTS,
    BASELINE_RECORDS,
    BASELINES_REFUSED,
    QUERIES,
    QUERY_SECONDS,
    PROMETHEUS_POINTS,
    READ_TIME,
    MISSED,
    REFILLED,
    FOREIGN,
    WITHOUT_LIMIT,
    CANDIDATE_SINCE,
    FINDING_OPENED,
    FINDING_MARK,
    ALERTS_POSTED,
)
