"""Settings that `kernelcast replay` and `kernelcast simulate` share."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer
from pydantic import BeforeValidator, Field

from kernelcast.exporter.totals.aggregate import DEFAULT_KERNELS
from kernelcast.runtime.settings.service import KafkaSettings, LogSettings, OptionName, Remedy, Section
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.identity import PROGRAM_PATTERN

ALL: Final = "all"
MAX: Final = "max"
MIN_INTERVAL_SECONDS: Final = 0.01

S = TypeVar("S", bound="RunSettings")


def _none_for(word: str) -> BeforeValidator:
    return BeforeValidator(lambda value: None if value == word else value)


class RunSettings(Section):
    """Settings of publishing a source that ends.

    Attributes:
        kafka: Where to.
        log: Settings of the log.
        interval_seconds: Time between two exports.
        kernels: Kernels with a series of their own, per program and GPU; None, written `all`, for every one.
        speed: Seconds of the source in one second; None, written `max`, for as fast as possible.
        flush_timeout_seconds: How long to wait at the end for Kafka's acknowledgements.
    """

    kafka: KafkaSettings = KafkaSettings()
    log: LogSettings = LogSettings(level="warning")
    interval_seconds: Annotated[
        float,
        Field(ge=MIN_INTERVAL_SECONDS, le=3600, allow_inf_nan=False),
        Remedy("1 second suits most"),
        OptionName("--interval"),
    ] = 1.0
    kernels: Annotated[Annotated[int, Field(ge=1)] | None, _none_for(ALL), Remedy("give a number, or all")] = (
        DEFAULT_KERNELS
    )
    speed: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)] | None,
        _none_for(MAX),
        Remedy("give a number above 0, or max"),
    ] = 1.0
    flush_timeout_seconds: Annotated[float, Field(ge=0, le=3600)] = 30.0


ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings file (YAML).")]
BootstrapServers = Annotated[
    str | None, typer.Option("--kafka.bootstrap-servers", metavar="HOST:PORT[,…]", help="Kafka brokers.")
]
Kernels = Annotated[
    str | None,
    typer.Option(
        "--kernels", metavar="N|all", help=f"Series of their own per program and GPU; default {DEFAULT_KERNELS}."
    ),
]
Speed = Annotated[
    str | None,
    typer.Option("--speed", metavar="N|max", help="Times as fast as it was recorded or simulated; default 1."),
]
Interval = Annotated[
    float | None, typer.Option("--interval", metavar="SECONDS", help="Between two exports; default 1.")
]
Hostname = Annotated[str | None, typer.Option("--hostname", help="Node of the series; default this one.")]
LogLevel = Annotated[str | None, typer.Option("--log.level", metavar="LEVEL", help="debug, info, warning or error.")]
LogFormat = Annotated[str | None, typer.Option("--log.format", metavar="FORMAT", help="logfmt or json.")]
SummaryFile = Annotated[
    Path | None,
    typer.Option("--summary", metavar="FILE", help="Write a summary of the sent messages, as JSON.", dir_okay=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options above as given on the command line; None where one was not given."""

    config: ConfigFile = None
    bootstrap_servers: BootstrapServers = None
    kernels: Kernels = None
    speed: Speed = None
    interval: Interval = None
    log_level: LogLevel = None
    log_format: LogFormat = None
    summary_file: SummaryFile = None

    def flags(self) -> dict[str, object]:
        """The options that are settings, by the dotted names of those."""
        return {
            "kafka.bootstrap_servers": self.bootstrap_servers,
            "log.level": self.log_level,
            "log.format": self.log_format,
            "kernels": self.kernels,
            "speed": self.speed,
            "interval_seconds": self.interval,
        }


def checked_program(program: str) -> str:
    """The name, if it can be a label and a key.

    Raises:
        ConfigurationError: It cannot.
    """
    if not PROGRAM_PATTERN.fullmatch(program):
        raise ConfigurationError(f"--program is {program!r}; it must be 1 to 128 printable characters; give another")
    return program
