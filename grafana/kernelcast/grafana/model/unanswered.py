"""Panels that stay empty on simulated nodes and in the demo, each with the reason; tests allow no others."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

MAX_UNANSWERED: Final = 6
"""Panels without data that a test allows in all."""
_HINTS: Final = "simulated programs take no hints; the demo's example program does"

UNANSWERED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Memory errors": "it shows errors, one mark for each, and there were none",
        "Measured effect": _HINTS,
        "Hints issued, and their outcomes": _HINTS,
        "What to change": _HINTS,
    }
)
"""Reasons by title."""

UNANSWERED_IN_DEMO: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Memory errors": UNANSWERED["Memory errors"],
        "Coverage of past intervals": "a share needs more forecasts that were compared with what came",
    }
)
"""Reasons by title, where every service runs and a GPU's cooling fails."""

_OF_GPUS: Final = "its state as the GPU itself reports it; a forecast is one state of several"
_AGE: Final = "it says how old the newest sample is"
_PREDICTOR: Final = "it is about what the predictor says, which works without this exporter"
_BY_RULES: Final = "alerts go on by their own rules; one of a finding has its beginning from the finding"
_BY_READER: Final = "a line for each reader; the stopped one has none"

SHOWN_WITHOUT: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {
        "predictor": {"Worst first": _OF_GPUS, "Waiting on Kafka": _BY_READER, "Alerts that fire": _BY_RULES},
        "bridge": {
            "Data": _AGE,
            "Waiting on Kafka": _BY_READER,
            "Daemons": "a line for each daemon, and one for Kafka",
        },
        "exporter": {
            "Data": "it says how old the newest sample is, and how many producers are silent",
            "Findings": _PREDICTOR,
            "What to change": _PREDICTOR,
            "Lost in this range": "it counts what every daemon has lost in this time, also one that has ended",
        },
        "kafka": {"Data": _AGE},
    }
)
"""Reasons by service and title: panels that name metrics which end with it, and show something while it is stopped."""
