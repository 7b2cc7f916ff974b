"""The command `kernelcast predictor`: reads the settings and runs the daemon until a signal stops it."""

import os
from functools import partial

from kernelcast.predictor.service import Predictor
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.command import DaemonOptions, daemon
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.service_manager import ServiceManager


@daemon
def predictor(options: DaemonOptions) -> None:
    """Forecast degradation and write tuning hints, from the metrics on Kafka."""
    read = partial(options.settings, "predictor", PredictorSettings)
    settings = read()
    with Shutdown().signals() as shutdown:
        Predictor(settings, read=read, manager=ServiceManager.from_environ(os.environ)).run(shutdown)
