"""Negotiates format and compression with a scraper: the supported one of the highest weight wins.

Sources: prometheus/docs, docs/instrumenting/content_negotiation.md; RFC 9110, sections 12.4.2, 12.5.1 and 12.5.3.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Format(Enum):
    """A format of pages."""

    TEXT = "text"
    OPENMETRICS = "openmetrics"
    PROTOBUF = "protobuf"


class Coding(Enum):
    """A compression of pages; the better one first."""

    ZSTD = "zstd"
    GZIP = "gzip"
    IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class Negotiated:
    """A format and its content type in the answer."""

    format: Format
    content_type: str


PLAIN_TEXT: Final = Negotiated(Format.TEXT, "text/plain; version=0.0.4; charset=utf-8")
"""The format for scrapers that accept none of ours, as the specification demands."""
_OPENMETRICS: Final = "application/openmetrics-text"
_PROTOBUF_PARAMETERS: Final = {"proto": "io.prometheus.client.MetricFamily", "encoding": "delimited"}
PROTOBUF: Final = Negotiated(
    Format.PROTOBUF, "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)
DEFAULT_ESCAPING: Final = "underscores"
ESCAPINGS: Final = frozenset({DEFAULT_ESCAPING, "allow-utf-8", "values"})
"""All names here are legal in the narrowest sense, so that these schemes leave them alone. `dots` would double every
underscore; a scraper that asks for it gets underscores, and the answer says so."""


@dataclass(frozen=True, slots=True)
class _Choice:
    value: str
    weight: float
    parameters: Mapping[str, str]


def _choices(header: str) -> Iterator[_Choice]:
    for item in header.split(","):
        value, *rest = (part.strip() for part in item.split(";"))
        pairs = (part.partition("=") for part in rest)
        parameters = {key.strip().lower(): text.strip().strip('"') for key, _, text in pairs}
        try:
            weight = float(parameters.pop("q", "1"))
        except ValueError:
            continue
        if value and 0 <= weight <= 1:
            yield _Choice(value.lower(), weight, parameters)


def negotiate(accept: str, usable: Callable[[Format], bool] = lambda _: True) -> Negotiated:
    """The format for an Accept header; among equal weights, the one that stands first.

    Args:
        accept: The header.
        usable: Whether a format can be written now.
    """
    best, highest = PLAIN_TEXT, 0.0
    for choice in _choices(accept):
        if choice.weight > highest and (found := _supported(choice)) is not None and usable(found.format):
            best, highest = found, choice.weight
    return best


def _supported(choice: _Choice) -> Negotiated | None:
    parameters = choice.parameters
    wanted = parameters.get("escaping", DEFAULT_ESCAPING)
    escaping = f"; escaping={wanted if wanted in ESCAPINGS else DEFAULT_ESCAPING}"
    match choice.value, parameters.get("version", ""):
        case ("text/plain", "" | "0.0.4") | ("*/*" | "text/*", _):
            return PLAIN_TEXT
        case "text/plain", "1.0.0":
            return Negotiated(Format.TEXT, f"text/plain; version=1.0.0; charset=utf-8{escaping}")
        case "application/openmetrics-text", "" | "0.0.1":
            return Negotiated(Format.OPENMETRICS, f"{_OPENMETRICS}; version=0.0.1; charset=utf-8")
        case "application/openmetrics-text", "1.0.0":
            return Negotiated(Format.OPENMETRICS, f"{_OPENMETRICS}; version=1.0.0; charset=utf-8{escaping}")
        case "application/vnd.google.protobuf", _ if _PROTOBUF_PARAMETERS.items() <= parameters.items():
            return PROTOBUF
    return None


def negotiate_coding(accept_encoding: str) -> Coding:
    """The compression for an Accept-Encoding header; among equal weights, the better one."""
    weights: dict[str, float] = {}
    for choice in _choices(accept_encoding):
        weights.setdefault("gzip" if choice.value == "x-gzip" else choice.value, choice.weight)
    rest = weights.get("*", 0.0)
    weighed = {coding: weights.get(coding.value, rest) for coding in Coding}
    best = max(weighed, key=lambda coding: weighed[coding])
    return best if weighed[best] > 0 else Coding.IDENTITY
