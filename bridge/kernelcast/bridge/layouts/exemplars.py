"""Exemplars: single observations of a counter or a bucket, with the id of the trace in which they were made.

`series.kept_exemplars` stores them undecoded; `expose.formats` encodes those of a page here, before compiled functions
write them to their samples.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from prometheus_client.utils import floatToGoString

from kernelcast.bridge.layouts.headers import COUNTER_KIND, HISTOGRAM_KIND
from kernelcast.bridge.layouts.page import NO_EXEMPLARS, EncodedExemplars, PackedTexts, PageLayout, PageValues
from kernelcast.bridge.tables.columns import NOT_A_HISTOGRAM
from kernelcast.columnar.encoding.fields import delimited, varint

LONGEST_LABELS: Final = 128
"""Largest number of characters in all names and values: OpenMetrics 1.0, "Exemplars"; Prometheus enforces it."""
NANOSECONDS_PER_SECOND: Final = 1_000_000_000
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One observation.

    Attributes:
        labels: `trace_id`, `span_id` and others, as names and values.
        value: The observed value.
        time_ns: Its time; 0 if unknown.
    """

    labels: tuple[tuple[str, str], ...]
    value: float
    time_ns: int = 0

    @property
    def fits(self) -> bool:
        """Whether its labels are short enough for a scrape."""
        return sum(len(name) + len(value) for name, value in self.labels) <= LONGEST_LABELS


Exemplars = Sequence[Exemplar]
"""Exemplars of one series, in any order."""
Encode = Callable[[Exemplar], bytes]


def encode_all(
    page: PageLayout, values: PageValues, exemplars: Mapping[int, Exemplars], encode: Encode
) -> EncodedExemplars:
    """Return the encoded exemplars of a snapshot, the newest one for each counter and each bucket.

    Args:
        page: Gives the kinds of series, which determine whether they may have exemplars.
        values: Give the buckets.
        exemplars: By position of the series.
        encode: Encodes one exemplar.
    """
    if not exemplars:
        return NO_EXEMPLARS
    newest = [
        (position, bucket, exemplar)
        for position, kind in _kinds(page, sorted(exemplars))
        for bucket, exemplar in _newest(values, position, kind, exemplars[position])
    ]
    return EncodedExemplars(
        np.array([position for position, _, _ in newest], np.int64),
        np.array([bucket for _, bucket, _ in newest], np.int32),
        PackedTexts.of(encode(exemplar) for _, _, exemplar in newest),
    )


def _kinds(page: PageLayout, positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    families = np.searchsorted(page.starts, positions, side="right") - 1
    return zip(positions, page.kinds[families].tolist(), strict=True)


def _newest(values: PageValues, position: int, kind: int, exemplars: Exemplars) -> list[tuple[int, Exemplar]]:
    bounds: list[float] = []
    schema = int(values.schema[position])
    if kind == HISTOGRAM_KIND and schema != NOT_A_HISTOGRAM:
        bounds = values.bounds[values.indptr[schema] : values.indptr[schema + 1]].tolist()
    elif kind != COUNTER_KIND:
        return []
    found: dict[int, Exemplar] = {}
    for exemplar in exemplars:
        bucket = bisect_left(bounds, exemplar.value)
        if exemplar.fits and (bucket not in found or found[bucket].time_ns <= exemplar.time_ns):
            found[bucket] = exemplar
    return sorted(found.items(), key=lambda item: item[0])


def openmetrics(exemplar: Exemplar) -> bytes:
    """Encode an exemplar for OpenMetrics: the text after the sample's value."""
    labels = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in exemplar.labels)
    number: str = floatToGoString(exemplar.value)  # type: ignore[no-untyped-call]
    seconds, rest = divmod(exemplar.time_ns, NANOSECONDS_PER_SECOND)
    time = f" {seconds}.{rest:09}" if exemplar.time_ns else ""
    return f" # {{{labels}}} {number}{time}".encode()


def protobuf(exemplar: Exemplar) -> bytes:
    """Encode an exemplar as io.prometheus.client.Exemplar, preceded by its length."""
    fields = b"".join(
        delimited(1, delimited(1, name.encode()) + delimited(2, value.encode())) for name, value in exemplar.labels
    )
    fields += b"\x11" + np.float64(exemplar.value).tobytes()
    if exemplar.time_ns:
        seconds, rest = divmod(exemplar.time_ns, NANOSECONDS_PER_SECOND)
        fields += delimited(3, b"\x08" + varint(seconds) + b"\x10" + varint(rest))
    return varint(len(fields)) + fields
