"""What a row of the catalogue is, and how an OTLP name becomes a Prometheus name."""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """What a metric is; the catalogue's word wins over what a producer claims."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric that kernelcast emits.

    Attributes:
        prometheus_name: As it stands on `/metrics`.
        kind: Its kind.
        help: One line for people.
        otlp_name: As it travels through Kafka; empty for a daemon's own metrics, which do not.
        unit: UCUM, as OTLP has it; empty for DCGM's names, so that no translator renames them.
        labels: Names of its labels.
        source: Where the values come from, for `docs/metrics.md`.
        exposed: False for what travels but never reaches Prometheus unless asked for.
    """

    prometheus_name: str
    kind: Kind
    help: str
    otlp_name: str = ""
    unit: str = ""
    labels: tuple[str, ...] = ()
    source: str = ""
    exposed: bool = True


UNIT_WORDS: Final = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "%": "percent",
    "1": "ratio",
}
"""UCUM to Prometheus's words: opentelemetry-specification, compatibility/prometheus_and_openmetrics.md."""

_PER: Final = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_ANNOTATION: Final = re.compile(r"\{[^}]*\}")
_FORBIDDEN: Final = re.compile(r"[^a-zA-Z0-9:_]+")


def unit_words(unit: str, kind: Kind) -> str:
    """The suffix a UCUM unit becomes, without a leading underscore; empty where it becomes none."""
    plain = _ANNOTATION.sub("", unit).strip()
    if not plain or (plain == "1" and kind is not Kind.GAUGE):
        return ""
    head, slash, per = plain.partition("/")
    words = UNIT_WORDS.get(head, head)
    if slash:
        words = f"{words}_per_{_PER.get(per, per)}" if head else f"per_{_PER.get(per, per)}"
    return _FORBIDDEN.sub("_", words).strip("_")


def translate(otlp_name: str, unit: str, kind: Kind) -> str:
    """The Prometheus name of an OTLP metric: characters, unit suffix, `_total`, `_info`.

    Source: opentelemetry-specification, compatibility/prometheus_and_openmetrics.md.
    """
    parts = [part for part in _FORBIDDEN.sub("_", otlp_name).split("_") if part]
    suffix = unit_words(unit, kind)
    wanted = [part for part in suffix.split("_") if part]
    if kind is Kind.COUNTER and parts and parts[-1] == "total":
        parts = parts[:-1]
    if wanted and parts[-len(wanted) :] != wanted:
        parts += wanted
    if kind is Kind.COUNTER:
        parts.append("total")
    if kind is Kind.INFO and parts[-1:] != ["info"]:
        parts.append("info")
    name = "_".join(parts)
    return f"_{name}" if name[:1].isdigit() else name


def travels(otlp_name: str, kind: Kind, help: str, *, unit: str, labels: tuple[str, ...], source: str) -> Metric:  # noqa: A002  the field's name
    """A row whose Prometheus name follows from its OTLP name by the specification."""
    return Metric(translate(otlp_name, unit, kind), kind, help, otlp_name, unit, labels, source)
