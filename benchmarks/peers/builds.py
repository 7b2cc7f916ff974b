"""Builds the other bridges from their own modules into a cache folder; the repository contains no part of them."""

import os
import shutil
from pathlib import Path
from typing import Final

from tests.service.built import PROMETHEUS, BuildError, Program, cache, go

COLLECTOR_VERSION: Final = "0.155.0"
COLLECTOR_MANIFEST: Final = Path(__file__).with_name("collector-builder.yaml")
COLLECTOR_BUILDER: Final = f"go.opentelemetry.io/collector/cmd/builder@v{COLLECTOR_VERSION}"

TELEGRAF: Final = Program(
    name="telegraf",
    module="github.com/influxdata/telegraf",
    version="v1.37.2",
    release="1.37.2",
    package="./cmd/telegraf",
    tags=("custom", "inputs.kafka_consumer", "outputs.prometheus_client", "parsers.influx"),
    version_variable="github.com/influxdata/telegraf/internal.Version",
)


def collector() -> Path:
    """The OpenTelemetry Collector's binary: Kafka receiver, batch processor and Prometheus exporter, nothing else.

    Raises:
        BuildError: It cannot be built here.
    """
    binary = cache() / f"otelcol-{COLLECTOR_VERSION}" / "otelcol"
    if not binary.exists():
        work = binary.parent / f"build.{os.getpid()}"
        work.mkdir(parents=True, exist_ok=True)
        manifest = shutil.copy(COLLECTOR_MANIFEST, work)
        go("run", COLLECTOR_BUILDER, "--config", str(manifest), directory=work, environ={"CGO_ENABLED": "0"})
        (work / "otelcol").rename(binary)
        shutil.rmtree(work)
    return binary


__all__ = ["COLLECTOR_VERSION", "PROMETHEUS", "TELEGRAF", "BuildError", "collector"]
