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
from dataclasses import MISSING, dataclass, fields, is_dataclass
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

    config: Annotated[Path | None, typer.Option("--config", help="Settings file (YAML).", show_default=False)] = None
    bootstrap_servers: Annotated[
        str | None,
        typer.Option("--kafka.bootstrap-servers", metavar="HOST:PORT[,…]", help="Kafka brokers.", show_default=False),
    ] = None
    listen_address: Annotated[
        str | None,
        typer.Option("--web.listen-address", metavar="HOST:PORT", help="Where to serve HTTP.", show_default=False),
    ] = None
    web_config_file: Annotated[
        str | None,
        typer.Option("--web.config.file", metavar="FILE", help="TLS and users, exporter-toolkit's format."),
    ] = None
    log_level: Annotated[
        str | None, typer.Option("--log.level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = None
    log_format: Annotated[str | None, typer.Option("--log.format", metavar="FORMAT", help="logfmt or json.")] = None
    check_config: Annotated[bool, typer.Option("--check-config", help="Check the settings and exit.")] = False

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


_VERSION: Final = inspect.Parameter(
    "show_version",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ],
)


def daemon(function: Callable[..., None]) -> Callable[..., None]:
    """As `command`, with the option `--version`; the function's first parameter is its `DaemonOptions`."""
    ready = command(function)

    @functools.wraps(ready)
    def without_version(**arguments: Any) -> None:
        arguments.pop(_VERSION.name)
        ready(**arguments)

    return _with_signature(without_version, [*inspect.signature(ready).parameters.values(), _VERSION])


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Turn our errors into one message on standard error and an exit code: 2 for configuration, 1 for run time.

    A parameter whose type is a dataclass stands for the fields of it, each of which is an option of the command::

        @command
        def list_command(kafka: KafkaOptions, *, everything: Annotated[bool, typer.Option("--all")] = False) -> None:
    """
    own = inspect.signature(function).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}

    @functools.wraps(function)
    def guarded(*arguments: Any, **named: Any) -> None:
        logging.keep_off_standard_output()
        for name, group in groups.items():
            named[name] = group(**{field.name: named.pop(field.name) for field in fields(group)})
        try:
            function(*arguments, **named)
        except KernelcastError as error:
            raise typer.Exit(report(error)) from None

    if not groups:
        return guarded
    return _with_signature(guarded, [each for one in own for each in _expanded(one)])


def _expanded(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The fields of the dataclass for which a parameter stands, else the parameter."""
    if not is_dataclass(parameter.annotation):
        return [parameter]
    kind, required = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    return [
        inspect.Parameter(
            field.name, kind, default=required if field.default is MISSING else field.default, annotation=field.type
        )
        for field in fields(parameter.annotation)
    ]


def _with_signature(function: Callable[..., None], parameters: list[inspect.Parameter]) -> Callable[..., None]:
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    function.__signature__ = inspect.Signature(keyword, return_annotation=None)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in keyword}
    return function
