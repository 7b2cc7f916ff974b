"""The metrics of Predictor processes about themselves, on their own `/metrics`; they do not travel through Kafka."""

from typing import Final

from kernelcast.wire.catalogue.model import Metric

ROWS: Final[tuple[Metric, ...]] = ()
