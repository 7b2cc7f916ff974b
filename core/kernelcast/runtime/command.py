"""Shared parts of the daemons' commands: options, exit codes, and the display of errors.

The command modules of exporter, bridge and predictor decorate their function with `daemon`; other commands of
`kernelcast` use `command`. Example::

    @daemon
    def bridge(options: DaemonOptions, *, shard: Annotated[str | None, typer.Option("--shard")] = None) -> None:
        '''Expose metrics from Kafka to Prometheus.'''
        settings = options.settings("bridge", BridgeSettings, flags={"shard": shard})
        with Shutdown().signals() as shutdown:
            run(settings, shutdown)
"""

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from kernelcast.runtime import logging
from kernelcast.runtime.exits import report
from kernelcast.runtime.kafka import connect
from kernelcast.runtime.settings.service import ServiceSettings, load
from kernelcast.runtime.web.config import read_web_config
from kernelcast.wire.errors import KernelcastError

S = TypeVar("S", bound=ServiceSettings)
Check = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """The options that every daemon has, as they were given."""

    config: Path | None = None
    bootstrap_servers: str | None = None
    listen_address: str | None = None
    web_config_file: str | None = None
    log_level: str | None = None
    log_format: str | None = None
    check_config: bool = False

    def settings(
        self, section: str, model: type[S], *, flags: Mapping[str, object] | None = None, checks: tuple[Check, ...] = ()
    ) -> S:
        """Read the settings and set logging up; with `--check-config`, say that they are valid and exit.

        Args:
            section: The service's section, as for `load`.
            model: The service's settings.
            flags: The service's own options, by dotted path; None means not given.
            checks: Checks beyond the model, such as whether a file can be opened; raises ConfigurationError.

        Raises:
            ConfigurationError: Lists every problem found.
            typer.Exit: The settings are valid, and only the check was requested.
        """
        shared = {
            "kafka.bootstrap_servers": self.bootstrap_servers,
            "web.listen_address": self.listen_address,
            "web.config_file": self.web_config_file,
            "log.level": self.log_level,
            "log.format": self.log_format,
        }
        settings = load(section, model, path=self.config, flags={**shared, **(flags or {})}, environ=os.environ)
        for check in checks:
            check(settings)
        if self.check_config:
            _check(settings)
            typer.echo("configuration is valid")
            raise typer.Exit(0)
        logging.configure(settings.log)
        return settings


def _check(settings: ServiceSettings) -> None:
    """Check settings that are otherwise checked at start: librdkafka's properties, the web configuration file."""
    connect.check(settings.kafka)
    if settings.web.config_file is not None:
        read_web_config(settings.web.config_file)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - typer passes it so
    if asked:
        typer.echo(f"kernelcast {version('kernelcast')}")
        raise typer.Exit(0)


_OPTIONS: Final[Mapping[str, Any]] = {
    "config": Annotated[Path | None, typer.Option("--config", help="Settings file (YAML).", show_default=False)],
    "bootstrap_servers": Annotated[
        str | None,
        typer.Option("--kafka.bootstrap-servers", metavar="HOST:PORT[,…]", help="Kafka brokers.", show_default=False),
    ],
    "listen_address": Annotated[
        str | None,
        typer.Option("--web.listen-address", metavar="HOST:PORT", help="Where to serve HTTP.", show_default=False),
    ],
    "web_config_file": Annotated[
        str | None,
        typer.Option("--web.config.file", metavar="FILE", help="TLS and users, exporter-toolkit's format."),
    ],
    "log_level": Annotated[
        str | None, typer.Option("--log.level", metavar="LEVEL", help="debug, info, warning or error.")
    ],
    "log_format": Annotated[str | None, typer.Option("--log.format", metavar="FORMAT", help="logfmt or json.")],
    "check_config": Annotated[bool, typer.Option("--check-config", help="Check the settings and exit.")],
}


_VERSION: Final = inspect.Parameter(
    "show_version",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ],
)


def daemon(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options, collected in its first parameter, and the shared exit codes."""
    own = list(inspect.signature(function).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=getattr(DaemonOptions(), name), annotation=annotation
        )
        for name, annotation in _OPTIONS.items()
    ]

    @functools.wraps(function)
    def command_function(**arguments: Any) -> None:
        arguments.pop(_VERSION.name)
        options = DaemonOptions(**{name: arguments.pop(name) for name in _OPTIONS})
        function(options, **arguments)

    return _with_signature(command(command_function), [*shared, *own, _VERSION])


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Turn our errors into one message on standard error and an exit code: 2 for configuration, 1 for run time."""

    @functools.wraps(function)
    def guarded(*arguments: Any, **named: Any) -> None:
        logging.keep_off_standard_output()
        try:
            function(*arguments, **named)
        except KernelcastError as error:
            raise typer.Exit(report(error)) from None

    return guarded


def _with_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    function.__signature__ = inspect.Signature(keyword, return_annotation=None)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in keyword}
    return function
