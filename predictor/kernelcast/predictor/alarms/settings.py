"""Settings of findings and pages."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from kernelcast.runtime.settings.service import Remedy, Section


class AlarmSettings(Section):
    """Settings of findings and pages.

    Attributes:
        pages_per_day: Pages for the whole fleet in 24 hours; further ones are held. Limits already passed are exempt.
        false_discovery_ratio: The smaller, the longer a prediction waits, given how many series are watched: the
            accepted share of false ones where probabilities hold at this site.
        hold_seconds: Time that an observed ticket or a slow worker must last before it is a finding, and a prediction
            whose limit is near at most; an observed fault that is a page waits for nothing.
        clear_seconds: Time without a candidate after which a finding is over.
        flaps: A candidate that comes this number of times within `flap_window_seconds` is flapping.
        flap_window_seconds: See `flaps`.
        quiet_seconds: Time without a candidate after which a flapping finding is over.
        rack_pattern: Regular expression with one group that finds the rack's name in a host name; empty for none.
        rack_file: File with a line `HOST RACK` for each host; precedes the pattern. Without both no rack is named.
        max_series: Series with a candidate that are followed; further ones are refused and counted.
    """

    pages_per_day: Annotated[int, Field(ge=0, le=10_000)] = 5
    false_discovery_ratio: Annotated[float, Field(gt=0, le=1)] = 0.1
    hold_seconds: Annotated[float, Field(ge=0)] = 600.0
    clear_seconds: Annotated[float, Field(ge=0)] = 1800.0
    flaps: Annotated[int, Field(ge=2, le=100)] = 3
    flap_window_seconds: Annotated[float, Field(gt=0)] = 3600.0
    quiet_seconds: Annotated[float, Field(ge=0)] = 7200.0
    rack_pattern: str = ""
    rack_file: Path | None = None
    max_series: Annotated[int, Field(ge=1), Remedy("raise it to the series of the fleet")] = 20_000

    @field_validator("rack_pattern")
    @classmethod
    def _must_have_one_group(cls, value: str) -> str:
        try:
            groups = re.compile(value).groups
        except re.error as error:
            raise ValueError(f"{value!r} is not a regular expression: {error}; write one such as ^(r[0-9]+)") from error
        if value and groups != 1:
            raise ValueError(f"{value!r} has {groups} groups; it needs one around the rack's name, such as ^(r[0-9]+)")
        return value
