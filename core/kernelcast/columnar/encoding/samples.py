"""Input and output of the OTLP encoder: a resource, its samples, and the export requests made from them."""

from dataclasses import dataclass
from typing import NamedTuple

from kernelcast.columnar.series import Attributes
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.errors import WireError
from kernelcast.wire.histogram import DurationTotals

REQUIRED_ATTRIBUTES = ("service.name", "service.instance.id")
"""Without them two writers of the same series could not be distinguished."""


@dataclass(frozen=True, slots=True)
class Resource:
    """Identity of the process that writes the samples, as OTLP's resource.

    Attributes:
        attributes: Sorted by key, each key once, which is not checked; `REQUIRED_ATTRIBUTES` among them.

    Raises:
        WireError: A required attribute is missing.
    """

    attributes: Attributes

    def __post_init__(self) -> None:
        keys = {key for key, _ in self.attributes}
        missing = [name for name in REQUIRED_ATTRIBUTES if name not in keys]
        if missing:
            raise WireError(
                f"resource attributes are {sorted(keys)}; {' and '.join(missing)} must be among them; "
                "give every writer a name and an instance id of its own"
            )


class Sample(NamedTuple):
    """One value of one series at one time; a tuple, because thousands are made every interval.

    Attributes:
        metric: Row of the catalogue: name, unit, kind.
        attributes: The series' labels, sorted by key, each key once.
        time_ns: Time of the measurement, Unix nanoseconds.
        value: int is sent as `as_int`, float as `as_double`; DurationTotals as a histogram; None says that a gauge or
            info series has ended (OTLP's no-recorded-value).
        start_ns: Start of the cumulative series, Unix nanoseconds; 0 for gauges.
        detailed: DurationTotals only: True sends an exponential histogram with its buckets, False count and sum alone.
    """

    metric: Metric
    attributes: Attributes
    time_ns: int
    value: int | float | DurationTotals | None
    start_ns: int = 0
    detailed: bool = False


@dataclass(frozen=True, slots=True)
class Export:
    """One serialised `ExportMetricsServiceRequest`.

    Attributes:
        body: The bytes.
        points: Data points in it.
    """

    body: bytes
    points: int
