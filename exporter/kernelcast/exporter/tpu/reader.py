"""Reads the TPU runtime on one port: values in the catalogue's units, and reasons for absent ones.

`TpuSource` calls `read` on the thread of that port; the result goes to its `poll`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from kernelcast.exporter.tpu.distributions import complete, durations
from kernelcast.exporter.tpu.metrics import METRICS, RuntimeMetric
from kernelcast.exporter.tpu.runtime import Point, TpuRuntime
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.errors import ServiceError
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Labels, labels

ALL: Final = "all"
"""Key in `RuntimeReading.absent` for all metrics together. The reasons for absence follow."""
NO_PROGRAM: Final = "no_program"
NOT_SUPPORTED: Final = "not_supported"
NO_DATA: Final = "no_data"
TIMEOUT: Final = "timeout"
ERROR: Final = "error"
ERRORS: Final = (TIMEOUT, ERROR)
"""Reasons that are counted as errors; the others are normal, such as a node without a running program."""
_REASONS: Final = MappingProxyType(
    {"unavailable": NO_PROGRAM, "deadline_exceeded": TIMEOUT, "not_found": NO_DATA, "unimplemented": NOT_SUPPORTED}
)
"""Names of gRPC's status codes to reasons; any other code is `ERROR`."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value of one row.

    Attributes:
        row: The row of the catalogue.
        labels: Labels of the point, without those of the node.
        value: A number in the row's unit; durations for a histogram.
        start_ns: The runtime's start time of a histogram, Unix nanoseconds; 0 if it gives none.
        detailed: Whether a histogram is sent with its buckets.
    """

    row: Metric
    labels: Labels
    value: float | DurationTotals
    start_ns: int = 0
    detailed: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeReading:
    """The answer of one runtime.

    Attributes:
        values: Its values.
        absent: The runtime's name of a metric, or `all`, to the reason why there is no value.
    """

    values: tuple[Value, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)


def read(runtime: TpuRuntime) -> RuntimeReading:
    """Query a runtime for all of its metrics; never raises for its answers."""
    try:
        supported = runtime.supported()
    except ServiceError as error:
        if error.reason != "unimplemented":
            return RuntimeReading(absent={ALL: _reason(error)})
        supported = frozenset(METRICS)  # an older runtime: it is asked for each
    values: list[Value] = []
    absent = dict.fromkeys(METRICS.keys() - supported, NOT_SUPPORTED)
    for name in sorted(METRICS.keys() & supported):
        try:
            found = [value_of(METRICS[name], point) for point in runtime.points(name)]
        except ServiceError as error:
            reason = _reason(error)
            if reason in (NO_PROGRAM, TIMEOUT):  # the others would fare no better, and each would be waited for
                return RuntimeReading(tuple(values), {**absent, ALL: reason})
            absent[name] = reason
            continue
        fitting = _merged(value for value in found if value is not None)
        values.extend(fitting)
        if not fitting:
            absent[name] = NO_DATA
    return RuntimeReading(tuple(values), absent)


def value_of(metric: RuntimeMetric, point: Point) -> Value | None:
    """Return a point in the row's unit; None if it is NaN, or a number where a distribution is expected."""
    own = labels(**{ours: point.attributes.get(theirs, "") for theirs, ours in metric.labels})
    number = isinstance(point.value, int | float)
    if number == (metric.row.kind is Kind.HISTOGRAM):
        return None
    if number:
        value = point.value if metric.factor == 1 else point.value * metric.factor
        return Value(metric.row, own, value) if math.isfinite(value) else None
    try:
        totals = durations(point.value, metric.factor)
    except (ValueError, OverflowError):
        return None
    return Value(metric.row, own, totals, point.start_ns, metric.detailed and complete(totals))


def _merged(values: Iterable[Value]) -> list[Value]:
    """Return one value for each label set: distributions are added, as in tpu-info; of several numbers the first."""
    found: dict[Labels, Value] = {}
    for value in values:
        known = found.setdefault(value.labels, value)
        if known is not value and isinstance(known.value, DurationTotals) and isinstance(value.value, DurationTotals):
            known.value.add(value.value)
            start_ns = min(known.start_ns, value.start_ns)
            found[value.labels] = replace(known, start_ns=start_ns, detailed=known.detailed and value.detailed)
    return list(found.values())


def _reason(error: ServiceError) -> str:
    return _REASONS.get(error.reason, ERROR)
