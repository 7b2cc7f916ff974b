"""`kernelcast bridge`."""

from typing import Final

from kernelcast.bridge.intake.modes import check
from kernelcast.bridge.service import Bridge
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime.command import DaemonOptions, daemon
from kernelcast.runtime.lifecycle import Shutdown

LOOK_SECONDS: Final = 0.5


@daemon
def bridge(options: DaemonOptions) -> None:
    """Expose what is on Kafka to Prometheus, and write Alertmanager's notifications to Kafka."""
    settings = options.settings("bridge", BridgeSettings, checks=(check,))
    with Shutdown().signals() as shutdown, Bridge(settings) as service:
        for _ in shutdown.every(LOOK_SECONDS):
            service.wait(0)
