"""What can be set about delta points: the section `bridge.deltas`."""

from typing import Annotated

from pydantic import Field

from kernelcast.runtime.settings.service import Remedy, Section


class DeltaSettings(Section):
    """Settings of the running totals of delta series.

    Attributes:
        max_series: Delta series held at most; points of others are refused and counted.
        snapshot_seconds: How often totals are written to `kernelcast.state`; a restart reads that much more again.
        snapshot_max_age_seconds: A snapshot is not used if messages were written so much later than it: all of them
            would be read again before anything is exposed. The totals begin at 0. A total is kept for as long after its
            series has ended.
    """

    max_series: Annotated[int, Field(ge=1), Remedy("set it above the number of delta series you expect")] = 1_000_000
    snapshot_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 30.0
    snapshot_max_age_seconds: Annotated[float, Field(ge=1, le=7 * 86_400)] = 3600.0
