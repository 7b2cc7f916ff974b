"""Translates an OTLP metric's name and unit to a Prometheus name.

Source: opentelemetry-specification, compatibility/prometheus_and_openmetrics.md. Where it allows several names, the
one of prometheus/otlptranslator is used, as Prometheus and the Collector do: a series has the same name through each.
"""

import re
from collections.abc import Sequence
from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric

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
    "1": "",
}
"""UCUM to Prometheus's words; `tibibytes` is misspelt as it is in every release of Prometheus and the Collector."""

_PER: Final = {"s": "second", "m": "minute", "h": "hour", "d": "day", "w": "week", "mo": "month", "y": "year"}
_ANNOTATION: Final = re.compile(r"\{[^}]*\}")
_WORD: Final = re.compile(r"[a-zA-Z0-9:]+")


def unit_words(unit: str, kind: Kind) -> str:
    """The suffix of a metric with this UCUM unit, without its first underscore; empty if there is none."""
    return "_".join(word for part in _unit_parts(unit, kind) for word in part)


def translate(otlp_name: str, unit: str, kind: Kind, *, suffixes: bool = True) -> str:
    """The Prometheus name of an OTLP metric; empty if its name has no legal character.

    A run of illegal characters and underscores becomes one underscore, and none where the name begins or ends.

    Args:
        otlp_name: The name on Kafka.
        unit: The unit in UCUM.
        kind: Kind of the metric: counters end with `_total`, infos with `_info`, gauges of unit 1 with `_ratio`.
        suffixes: Whether to add the suffixes of unit and kind.
    """
    words = _WORD.findall(otlp_name)
    if not words:
        return ""
    if suffixes:
        words = _with_suffixes(words, unit, kind)
    name = "_".join(words)
    return f"_{name}" if name[0].isdigit() else name


def kafka_metric(otlp_name: str, kind: Kind, help: str, *, unit: str, labels: tuple[str, ...], source: str) -> Metric:  # noqa: A002  the field's name
    """The catalogue's row of a metric that is sent over Kafka; its Prometheus name is that of its OTLP name."""
    return Metric(translate(otlp_name, unit, kind), kind, help, otlp_name, unit, labels, source)


def _with_suffixes(words: Sequence[str], unit: str, kind: Kind) -> list[str]:
    # As otlptranslator: words of the unit that the name contains are not added again (`io_bytes` in bytes stays), but
    # `ratio` and `total` are moved to the end.
    suffixed = list(words)
    for part in _unit_parts(unit, kind):
        if part == ["ratio"]:
            suffixed = _without(suffixed, "ratio")
        if not _contains_words(suffixed, part):
            suffixed += part
    if kind is Kind.COUNTER:
        suffixed = [*_without(suffixed, "total"), "total"]
    if kind is Kind.INFO and suffixed[-1] != "info":
        suffixed.append("info")
    return suffixed


def _unit_parts(unit: str, kind: Kind) -> tuple[list[str], list[str]]:
    """Return the words of a unit, and those after "per"."""
    plain = _ANNOTATION.sub("", unit).strip()
    if plain == "1" and kind is Kind.GAUGE:
        return ["ratio"], []
    head, _, per = (part.strip() for part in plain.partition("/"))
    per_words = _WORD.findall(_PER.get(per, per))
    return _WORD.findall(UNIT_WORDS.get(head, head)), ["per", *per_words] if per_words else []


def _contains_words(words: Sequence[str], part: Sequence[str]) -> bool:
    return any(list(words[start : start + len(part)]) == list(part) for start in range(len(words) - len(part) + 1))


def _without(words: Sequence[str], word: str) -> list[str]:
    return [one for one in words if one != word]
