"""Reads Prometheus remote write requests, 1.0 and 2.0, in snappy's block format or uncompressed.

Kafka has no content type, so the version is recognised by the body: 1.0 begins with field 1 or 3, 2.0 with field 4 or
5, because 2.0 reserves the numbers 1 to 3 for this purpose. Names and labels are not changed; every sample is a
separate series, including classic buckets. Exemplars are ignored. 1.0 sends metadata from time to time in separate
requests: a series gets the metadata known at its first sample, and is of an unknown kind without any.
"""

from typing import Any, Final

from google.protobuf.message import DecodeError as ProtobufError

from kernelcast.bridge.inputs.formats import TopicFormat
from kernelcast.bridge.inputs.interning import Spellings
from kernelcast.bridge.inputs.naming import NamedSeries
from kernelcast.bridge.inputs.parsing import Parsing
from kernelcast.bridge.inputs.remote_write.histograms import MessageBuckets, histogram_point
from kernelcast.bridge.inputs.remote_write.schema import LABEL, REQUEST, WRITE_REQUEST
from kernelcast.bridge.inputs.rows import BatchRows
from kernelcast.bridge.inputs.unpacking import snappy
from kernelcast.wire.catalogue import Kind
from kernelcast.wire.errors import DecodeError

TIMESERIES_1: Final = 0x0A
METADATA_1: Final = 0x1A
SYMBOLS_2: Final = 0x22
TIMESERIES_2: Final = 0x2A
"""Tags that a body can begin with."""
_FIRST_TAGS: Final = (TIMESERIES_1, METADATA_1, SYMBOLS_2, TIMESERIES_2)
MAX_METADATA: Final = 100_000
"""Families; beyond it all are forgotten, because 1.0 sends them again every minute."""
MAX_METADATA_BYTES: Final = 4096
"""Longest family name that is kept, and longest help and unit; longer texts are cut."""
NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
LAST_MS: Final = 2**64 // NANOSECONDS_PER_MILLISECOND
"""First timestamp whose nanoseconds do not fit 64 bits."""

COUNTER, GAUGE, HISTOGRAM, GAUGE_HISTOGRAM, SUMMARY, INFO, STATESET = range(1, 8)
"""Metric types, numbered alike in both versions."""
_KINDS: Final = {
    COUNTER: Kind.COUNTER,
    GAUGE: Kind.GAUGE,
    GAUGE_HISTOGRAM: Kind.GAUGE,
    SUMMARY: Kind.GAUGE,
    INFO: Kind.INFO,
    STATESET: Kind.GAUGE,
}
"""Kind of a series that has its family's name, by type."""
_SUFFIXES: Final = {
    COUNTER: ("_total",),
    HISTOGRAM: ("_bucket", "_sum", "_count"),
    SUMMARY: ("_sum", "_count"),
    INFO: ("_info",),
}
"""Suffixes of a family's series, by type: metadata has the family's name, series have these."""

Metadata = tuple[int, str, str]
"""Type, help and unit."""
NO_METADATA: Final[Metadata] = (0, "", "")


class RemoteWrite(Parsing):
    """Reads remote write requests; for one thread. Labels are parsed only for a new series."""

    format = "remote_write"

    def __init__(self, settings: TopicFormat | None = None, **options: Any) -> None:
        super().__init__(settings, **options)
        self._samples: Spellings = {}
        self._histograms: Spellings = {}
        self._metadata: dict[str, Metadata] = {}
        self._buckets = MessageBuckets(self.limits)

    def read(self, message: bytes, rows: BatchRows) -> None:
        """Read one request.

        Raises:
            DecodeError: It is neither version, or over a limit.
        """
        body = message if message[:1] and is_uncompressed(message) else snappy(message, self.limits)
        self._buckets = MessageBuckets(self.limits)
        version = 2 if body[:1] and body[0] in (SYMBOLS_2, TIMESERIES_2) else 1
        try:
            request = (REQUEST if version == 2 else WRITE_REQUEST).FromString(body)
        except ProtobufError as error:
            raise DecodeError(
                f"message of {len(message)} bytes is no remote write request, neither bare nor in snappy: protobuf "
                f"says {str(error).strip()!r}; look at the producer, or at the topic's entry in bridge.formats"
            ) from None
        if version == 1:
            self._read_1(request, rows)
        else:
            self._read_2(request, rows)

    def _read_1(self, request: Any, rows: BatchRows) -> None:
        for series in request.timeseries:
            key = tuple(series.labels)
            if series.samples:
                number = self._samples.get(key)
                if number is None:
                    number = self._admit(self._samples, key, _parsed(key), None)
                _add_samples(rows, number, series.samples, 0)
            if series.histograms:
                number = self._histograms.get(key)
                if number is None:
                    number = self._admit(self._histograms, key, _parsed(key), None)
                self._add_histograms(rows, number, series.histograms, 0)
        for item in request.metadata:
            self._remember_metadata(item.metric_family_name, (item.type, item.help, item.unit))

    def _read_2(self, request: Any, rows: BatchRows) -> None:
        symbols = list(request.symbols)
        symbol = symbols.__getitem__
        try:
            for series in request.timeseries:
                key = tuple(map(symbol, series.labels_refs))
                for known, points in ((self._samples, series.samples), (self._histograms, series.histograms)):
                    if not points:
                        continue
                    number = known.get(key)
                    if number is None:
                        item = series.metadata
                        texts = [symbols[ref] if ref < len(symbols) else "" for ref in (item.help_ref, item.unit_ref)]
                        number = self._admit(known, key, _paired(key), (item.type, *texts))
                    if known is self._samples:
                        _add_samples(rows, number, points, series.created_timestamp)
                    else:
                        self._add_histograms(rows, number, points, series.created_timestamp)
        except IndexError:
            raise DecodeError(
                f"a series refers to a symbol beyond the {len(symbols)} that the message has; look at the producer"
            ) from None

    def _admit(
        self, known: Spellings, key: tuple[Any, ...], labels: list[tuple[str, str]], metadata: Metadata | None
    ) -> int:
        name = next((value for label, value in labels if label == "__name__"), "")
        if metadata is None:
            metadata = self._metadata_of(name)
        kind = Kind.HISTOGRAM if known is self._histograms else _kind(name, metadata[0])
        canonical = self.labels((pair for pair in labels if pair[0] != "__name__"), kind)
        number = self.interner.add(NamedSeries(self.shared_family(name, kind, *metadata[1:]), canonical))
        self.interner.remember_spelling(number, known, key, number)
        return number

    def _add_histograms(self, rows: BatchRows, number: int, histograms: Any, created_ms: int) -> None:
        for histogram in histograms:
            times_ns = _nanoseconds(histogram.timestamp), _nanoseconds(histogram.start_timestamp or created_ms)
            point = histogram_point(histogram, times_ns, number, self._buckets)
            if point is None:
                rows.unsupported += 1
            else:
                rows.histograms.append(point)

    def _remember_metadata(self, family: str, metadata: Metadata) -> None:
        if len(self._metadata) >= MAX_METADATA and family not in self._metadata:
            self._metadata.clear()  # it is sent again every minute
        if len(family) <= MAX_METADATA_BYTES:
            type_, help_, unit = metadata
            self._metadata[family] = (type_, help_[:MAX_METADATA_BYTES], unit[:MAX_METADATA_BYTES])

    def _metadata_of(self, name: str) -> Metadata:
        found = self._metadata.get(name)
        if found is not None:
            return found
        for type_, suffixes in _SUFFIXES.items():
            for suffix in suffixes:
                if name.endswith(suffix):
                    found = self._metadata.get(name.removesuffix(suffix), NO_METADATA)
                    if found[0] == type_:
                        return found
        return NO_METADATA


def is_uncompressed(message: bytes) -> bool:
    """Whether a body is not compressed: it begins with a tag of either version.

    A snappy block that begins with one of these bytes is that many bytes long, and its second byte is the tag of a
    literal: as the length of a protobuf field, that would be longer than the whole.
    """
    if message[0] not in _FIRST_TAGS:
        return False
    return len(message) < 2 or message[1] >= 0x80 or message[1] <= len(message) - 2


def _kind(name: str, type_: int) -> Kind:
    if type_ in (HISTOGRAM, SUMMARY) and name.endswith(_SUFFIXES[type_]):
        return Kind.COUNTER
    return _KINDS.get(type_, Kind.UNKNOWN)


def _add_samples(rows: BatchRows, number: int, samples: Any, created_ms: int) -> None:
    for sample in samples:
        timestamp_ms = sample.timestamp
        start_ms = sample.start_timestamp or created_ms
        if start_ms:
            rows.start_ns[len(rows.series)] = _nanoseconds(start_ms)
        rows.series.append(number)
        rows.value.append(sample.value)
        rows.time_ns.append(
            timestamp_ms * NANOSECONDS_PER_MILLISECOND if 0 <= timestamp_ms < LAST_MS else _nanoseconds(timestamp_ms)
        )


def _nanoseconds(timestamp_ms: int) -> int:
    """Nanoseconds; a time before 1970 is the first nanosecond, because 0 says that there is none."""
    if timestamp_ms >= LAST_MS:
        raise DecodeError(f"a timestamp is {timestamp_ms} ms; the last is {LAST_MS}; milliseconds since 1970 are meant")
    return timestamp_ms * NANOSECONDS_PER_MILLISECOND if timestamp_ms >= 0 else 1


def _parsed(key: tuple[bytes, ...]) -> list[tuple[str, str]]:
    try:
        labels = [LABEL.FromString(label) for label in key]
    except ProtobufError as error:
        raise DecodeError(
            f"a series' label is malformed: protobuf says {str(error).strip()!r}; look at the producer"
        ) from None
    return [(label.name, label.value) for label in labels]


def _paired(key: tuple[str, ...]) -> list[tuple[str, str]]:
    if len(key) % 2:
        raise DecodeError(f"a series has {len(key)} label references; they must be pairs; look at the producer")
    return list(zip(key[::2], key[1::2], strict=True))
