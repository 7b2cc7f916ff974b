"""The command `kernelcast predictor`: reads the settings and runs the daemon until a signal stops it."""

import os
from functools import partial
from typing import Annotated

import typer

from kernelcast.columnar import Decoder
from kernelcast.predictor.alarms.racks import rack_of
from kernelcast.predictor.forecasting import machine_code
from kernelcast.predictor.prometheus import PrometheusClient
from kernelcast.predictor.service import Predictor
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.without_kafka import service as without_kafka
from kernelcast.runtime.command import DaemonOptions, daemon
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.service_manager import ServiceManager

_log = get_logger(__name__)


@daemon
def predictor(
    options: DaemonOptions,
    *,
    prometheus: Annotated[
        str | None,
        typer.Option(
            "--prometheus",
            metavar="URL",
            help="Take all series from this Prometheus, without Kafka.",
            show_default=False,
        ),
    ] = None,
    alertmanager: Annotated[
        str | None,
        typer.Option(
            "--alertmanager",
            metavar="URL",
            help="With --prometheus: post findings there, instead of alerting by Prometheus' rules.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Forecast degradation and write tuning hints, from the metrics on Kafka or in a Prometheus.

    Without Kafka, beside a Prometheus that scrapes dcgm-exporter:

        kernelcast predictor --prometheus http://localhost:9090

    Then let Prometheus scrape the predictor, http://localhost:19402/metrics, for predictions and findings.
    """
    flags = {
        "prometheus.url": prometheus,
        "prometheus.without_kafka": True if prometheus is not None else None,
        "prometheus.alertmanager_url": alertmanager,
    }
    read = partial(options.settings, "predictor", PredictorSettings, flags=flags, checks=(_check_files,))
    settings = read()
    manager = ServiceManager.from_environ(os.environ)
    _log.info("predictor starts; a first start compiles machine code for about a minute", reads=_source(settings))
    _compile(settings)
    with Shutdown().signals() as shutdown:
        if settings.prometheus.without_kafka:
            without_kafka.run(read, shutdown, manager=manager)
        else:
            Predictor(settings, read=read, manager=manager).run(shutdown)
    _log.info("predictor stopped")


def _check_files(settings: PredictorSettings) -> None:
    """Check the files that the settings name.

    Raises:
        ConfigurationError: One cannot be used.
    """
    settings.prometheus.access.check()
    rack_of(settings.alarms)


def _source(settings: PredictorSettings) -> str:
    if settings.prometheus.without_kafka:
        return f"Prometheus at {PrometheusClient(settings.prometheus.url).address}"
    return f"Kafka at {settings.kafka.bootstrap_servers}; a site without Kafka gives --prometheus URL"


def _compile(settings: PredictorSettings) -> None:
    """Compile the loops, or load their machine code, before anything is open and before `Shutdown` handles signals.

    So a signal ends this half minute of a core at once.
    """
    if not settings.prometheus.without_kafka:
        Decoder.warm_up()
    machine_code.warm_up()
