"""Applies changed settings on SIGHUP if they can change while the predictor runs, and logs those that cannot.

`service` registers `reload`, which runs on the thread that reads Kafka.
"""

from collections.abc import Callable
from typing import Final

from kernelcast.predictor.engine import Engine
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime import logging, reloading

RELOADED: Final = (
    *("log", "judge", "limits", "calendar", "time_zone", "holidays", "publish"),
    *("horizons_seconds", "max_fits_per_sweep", "hints"),
)
"""Settings that can change while running. The others name the grid, sizes of tables, sockets and topics."""


def reload(engine: Engine, started: PredictorSettings, read: Callable[[], PredictorSettings]) -> None:
    """Apply the settings that can change while running; invalid settings change nothing.

    Args:
        engine: Takes them.
        started: The settings at the start.
        read: Reads the settings again; raises ConfigurationError if they are invalid.
    """

    def change(settings: PredictorSettings) -> None:
        logging.configure(settings.log)
        engine.change(settings)

    reloading.reload(started, read, change, reloaded=RELOADED)
