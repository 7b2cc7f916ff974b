"""`kernelcast predictor`."""

from kernelcast.predictor.service import Predictor
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.command import DaemonOptions, daemon
from kernelcast.runtime.lifecycle import Shutdown


@daemon
def predictor(options: DaemonOptions) -> None:
    """Forecast degradation and write tuning hints, from the metrics on Kafka."""
    settings = options.settings("predictor", PredictorSettings)
    with Shutdown().signals() as shutdown:
        Predictor(settings).run(shutdown)
