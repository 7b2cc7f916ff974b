"""Decodes a message with an input, point by point, for tests."""

from dataclasses import dataclass, field
from typing import Any

from kernelcast.bridge.tables.placement import Placement
from kernelcast.columnar import IS_INTEGER, NO_RECORDED_VALUE
from kernelcast.wire.catalogue import Kind


@dataclass(frozen=True)
class Read:
    """A point with its series."""

    name: str
    kind: Kind
    help: str
    labels: str
    time_ns: int
    start_ns: int
    value: float | int | None
    count: int = 0
    bounds: list[float] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)


def read(source: Any, message: bytes) -> list[Read]:
    """Every point of a message that must be usable: numbers, then histograms."""
    decoded = source.decode([message])
    assert not decoded.failures, decoded.failures
    points = []
    numbers = decoded.numbers
    for i, flags in enumerate(numbers.flags.tolist()):
        value: float | int | None = int(numbers.integer[i]) if flags & IS_INTEGER else float(numbers.value[i])
        points.append(_point(source, numbers, i, None if flags & NO_RECORDED_VALUE else value))
    rows = decoded.histograms
    for i, flags in enumerate(rows.flags.tolist()):
        point = _point(source, rows, i, None if flags & NO_RECORDED_VALUE else float(rows.total[i]))
        bounds = rows.bounds[rows.bounds_indptr[i] : rows.bounds_indptr[i + 1]].tolist()
        buckets = rows.buckets[rows.bucket_indptr[i] : rows.bucket_indptr[i + 1]].tolist()
        points.append(Read(**{**vars_of(point), "count": int(rows.count[i]), "bounds": bounds, "buckets": buckets}))
    return points


def one(source: Any, message: bytes) -> Read:
    """The only point of a message."""
    [point] = read(source, message)
    return point


def vars_of(point: Read) -> dict[str, Any]:
    return {name: getattr(point, name) for name in Read.__dataclass_fields__}


def _point(source: Any, columns: Any, i: int, value: float | None) -> Read:
    identity = source.identity(int(columns.series[i]))
    assert isinstance(identity, Placement), identity
    return Read(
        identity.name,
        identity.kind,
        identity.help,
        identity.labels.decode(),
        int(columns.time_ns[i]),
        int(columns.start_ns[i]),
        value,
    )
