"""`kernelcast bridge`."""

import gc
from typing import Final

from kernelcast.bridge.modes import check
from kernelcast.bridge.service import Bridge
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime.command import DaemonOptions, daemon
from kernelcast.runtime.lifecycle import Shutdown

LOOK_SECONDS: Final = 0.5
YOUNG_OBJECTS: Final = 50_000
"""Number of new container objects that starts a collection of young objects. Python's default of 700 is passed 100
times while one long message of JSON is read, although none of its objects is garbage yet."""


@daemon
def bridge(options: DaemonOptions) -> None:
    """Expose metrics from Kafka to Prometheus, and write Alertmanager's notifications to Kafka."""
    settings = options.settings("bridge", BridgeSettings, checks=(check,))
    set_up_garbage_collector()
    with Shutdown().signals() as shutdown, Bridge(settings) as service:
        for _ in shutdown.every(LOOK_SECONDS):
            service.wait(0)


def set_up_garbage_collector() -> None:
    """Make the garbage collector cheap for a process that reads many small objects; once, before threads start.

    Everything imported so far is exempt from collection. Reading a message must not change the collector: its state
    belongs to the whole process, and threads that switch it off and on can leave it off.
    """
    gc.collect()
    gc.freeze()
    _, *older_generations = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, *older_generations)
