"""Words for the value of a metric in a sentence about a GPU or a kernel: a verb, and a unit.

Texts of rules and of alerts that the predictor posts have them.
"""

import re
from dataclasses import dataclass
from typing import Final

from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.kernel import DURATION

SECONDS: Final = "s"
"""Unit of values that are written as a duration."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """How a sentence gives the value of some metrics: "uses 67491 MiB".

    Attributes:
        pattern: Regular expression that is found in the names of the metrics.
        verb: Before the value.
        unit: After it; `SECONDS` stands for a duration.
    """

    pattern: str
    verb: str
    unit: str


PHRASES: Final = (
    Phrase("_TEMP$", "is", "°C"),
    Phrase(device.FB_USED.prometheus_name, "uses", "MiB"),
    Phrase(DURATION.prometheus_name, "takes", SECONDS),
    Phrase(device.POWER_USAGE.prometheus_name, "takes", "W"),
    Phrase(device.SM_CLOCK.prometheus_name, "runs at", "MHz"),
    Phrase(device.GPU_UTIL.prometheus_name, "is busy", "%"),
)


def phrase(metric: str) -> Phrase | None:
    """The phrase of a metric; None where it has none, so that its name must be said."""
    return next((known for known in PHRASES if re.search(known.pattern, metric)), None)
