"""The row of the catalogue: one metric, with its kind."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """Kind of a metric; the catalogue has precedence over a producer's claim."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"
    SUMMARY = "summary"
    """Quantiles that a producer computed. No row of the catalogue is of this kind."""
    UNKNOWN = "unknown"
    """A foreign series without metadata. No row of the catalogue is of this kind."""

    __hash__ = object.__hash__  # an enum's own is a function in Python, called for each look-up of a family


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric that kernelcast emits.

    Attributes:
        prometheus_name: Its name on `/metrics`.
        kind: Its kind.
        help: One line for people.
        otlp_name: Its name on Kafka; empty for a daemon's own metrics, which do not go through Kafka.
        unit: UCUM, as OTLP has it; empty for DCGM's names, so that no translator renames them.
        labels: Names of its labels.
        source: Origin of the values, for `docs/metrics.md`.
        exposed: False for a metric that the predictor alone reads from Kafka; the bridge does not expose it.
    """

    prometheus_name: str
    kind: Kind
    help: str
    otlp_name: str = ""
    unit: str = ""
    labels: tuple[str, ...] = ()
    source: str = ""
    exposed: bool = True

    def __hash__(self) -> int:
        """Of the names alone, which are its own: rows are looked up for every sample."""
        return hash((self.prometheus_name, self.otlp_name))
