"""Builds the other bridges from their own modules into a cache folder; the repository contains no part of them."""

from pathlib import Path
from typing import Final

from tests.service.built import PROMETHEUS, BuildError, Collector, Program

COLLECTOR: Final = Collector(
    name="otelcol", release="0.155.0", manifest=Path(__file__).with_name("collector-builder.yaml")
)
"""Kafka receiver, batch processor and Prometheus exporter, nothing else."""

TELEGRAF: Final = Program(
    name="telegraf",
    module="github.com/influxdata/telegraf",
    version="v1.37.2",
    release="1.37.2",
    package="./cmd/telegraf",
    tags=("custom", "inputs.kafka_consumer", "outputs.prometheus_client", "parsers.influx"),
    version_variable="github.com/influxdata/telegraf/internal.Version",
)

__all__ = ["COLLECTOR", "PROMETHEUS", "TELEGRAF", "BuildError"]
