"""Settings of delta points, and the rules for keeping their totals."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from kernelcast.runtime.settings.service import Remedy, Section


class DeltaSettings(Section):
    """Settings of the running totals of delta series.

    Attributes:
        max_series: Largest number of delta series; points of further series are refused and counted.
        snapshot_seconds: Interval at which totals are written to `kernelcast.state`. A restart reads the messages of
            up to one interval again.
        snapshot_max_age_seconds: Age of the oldest snapshot that is used, because all messages after it are read again
            before anything is exposed. Without a snapshot, totals begin at 0. A total is kept equally long after its
            series has ended.
    """

    max_series: Annotated[int, Field(ge=1), Remedy("set it above the number of delta series you expect")] = 1_000_000
    snapshot_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 30.0
    snapshot_max_age_seconds: Annotated[float, Field(ge=1, le=7 * 86_400)] = 3600.0


@dataclass(frozen=True, slots=True)
class DeltaPolicy:
    """Rules for keeping totals.

    Attributes:
        settings: The section `bridge.deltas`.
        ttl_seconds: How long a series stays after its last point.
        tolerance_ns: How far ahead of its append time a time may lie.
        by_partition: Whether each series stays in one partition, which replicas hand over to each other.
        hold_seconds: How long a series that is new in a grown topic is hidden at least, see `series.held`.
    """

    settings: DeltaSettings
    ttl_seconds: float = 300.0
    tolerance_ns: int = 10_000_000_000
    by_partition: bool = True
    hold_seconds: float = 60.0
