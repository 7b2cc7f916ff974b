"""Places many OTLP series at once, for `Wires.arrivals`; each part that several series share is translated once.

Example: 240 series of a node have 30 metrics, one resource and 8 sets of attributes: 30 names and 8 label sets are
made, not 240 of each.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import LABELS_TOO_LONG, Int32Array
from kernelcast.bridge.tables.new_series import PLACED, NewSeries
from kernelcast.bridge.translation.translate import LabelStyle, NamedFamily, Scope, Translator, scope_of
from kernelcast.columnar import Attributes, SharedIdentities
from kernelcast.columnar.distinct import distinct_numbers, first_uses

V = TypeVar("V", bound=Hashable)
IndexArray = NDArray[np.int64]


class _LabelSources(NamedTuple):
    """The sources of labels besides a series' own attributes; equal ones give equal labels."""

    resource: Attributes
    scope: Scope
    style: LabelStyle


def place_together(translator: Translator, series: SharedIdentities) -> NewSeries:
    """Return the placements of series, equal to those of `Translator.place`.

    Args:
        translator: Translates by its settings.
        series: k series.
    """
    named = [translator.named_together(metric) for metric in series.metrics]
    refused = np.array([one if isinstance(one, int) else PLACED for one in named], np.int32)[series.metric]
    rows = np.flatnonzero(refused == PLACED)
    sources, source = _distinct_sources(series, named, rows)
    own, attribute_set = len(series.attributes), series.attribute_set[rows]
    pairs, pair = distinct_numbers(source * own + attribute_set)
    renderers = [translator.renderer(*one) for one in sources]
    labels = [renderers[one // own](series.attributes[one % own]) for one in pairs.tolist()]
    too_long = np.array([text is None for text in labels], np.bool_)[pair]
    refused[rows[too_long]] = LABELS_TOO_LONG
    kept = ~too_long
    headings = [one.heading if isinstance(one, NamedFamily) else None for one in named]
    origins = [translator.origin(*one) for one in sources]
    return NewSeries(
        refused,
        *_distinct(headings, series.metric[rows[kept]]),
        *_distinct(origins, source[kept]),
        *_distinct(labels, pair[kept]),
    )


def _distinct_sources(
    series: SharedIdentities, named: Sequence[NamedFamily | int], rows: IndexArray
) -> tuple[list[_LabelSources], IndexArray]:
    """Return the distinct sources of rows, and the index of each row's source."""
    styles: dict[tuple[str, LabelStyle], int] = {}
    style = [
        styles.setdefault((metric.schema_url, one.style), len(styles)) if isinstance(one, NamedFamily) else -1
        for metric, one in zip(series.metrics, named, strict=True)
    ]
    known, scopes = list(styles), series.scopes
    of_rows = np.array(style, np.int64)[series.metric[rows]]
    pairs, pair = distinct_numbers(series.scope[rows].astype(np.int64) * len(known) + of_rows)
    sources = []
    for number in pairs.tolist():
        scope, (schema_url, own) = scopes[number // len(known)], known[number % len(known)]
        names = scope_of((scope.name, scope.version, schema_url), scope.attributes)
        sources.append(_LabelSources(scope.resource, names, own))
    return sources, pair


def _distinct(values: Sequence[V | None], index: IndexArray | Int32Array) -> tuple[tuple[V, ...], Int32Array]:
    """Return the values that an index refers to, each once, by first use; and the index into those."""
    numbers: dict[V, int] = {}
    number: Int32Array = np.empty(len(values), np.int32)
    for at in first_uses(index, len(values)):
        value = values[at]
        if value is None:
            raise AssertionError("a series that is kept has all its parts")
        number[at] = numbers.setdefault(value, len(numbers))
    return tuple(numbers), number[index]
