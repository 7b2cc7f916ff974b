"""Describes every command: options, arguments, defaults, and the exit codes of what scripts run into."""

import argparse
import contextlib
import importlib
import inspect
import io
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints
from unittest.mock import patch

import typer
from tests.surface.places import REPOSITORY

from kernelcast.cli import app
from kernelcast.runtime.exits import report
from kernelcast.wire import errors

PARSED_BY_ARGPARSE: Final = {
    "kernelcast health": "kernelcast.cli.health",
    "kernelcast probe": "kernelcast.probe.command",
    "python -m kernelcast.bridge.warm_up": "kernelcast.bridge.warm_up",
    "python -m kernelcast.probe.example": "kernelcast.probe.example",
}


def commands() -> dict[str, Any]:
    """Options and arguments by command."""
    by_typer = (name for name, listing in app.LISTINGS.items() if not listing.plain)
    described = {name: options for command in by_typer for name, options in _typer_command(command)}
    return described | {name: _argparse_command(module) for name, module in PARSED_BY_ARGPARSE.items()}


def exit_codes() -> dict[str, Any]:
    """Exit codes, by request or by failure."""
    with tempfile.TemporaryDirectory() as folder:
        broken = Path(folder) / "broken.yaml"
        broken.write_text("bridge: {no_such_key: 1}\n")
        asked = {
            "--help": ["--help"],
            "--version": ["--version"],
            "a command that does not exist": ["nothing"],
            "an option that does not exist": ["bridge", "--nothing"],
            "--check-config, all is well": ["bridge", "--check-config"],
            "a settings file that is missing": ["bridge", "--config", f"{folder}/nowhere.yaml"],
            "a settings file with an unknown key": ["bridge", "--config", str(broken)],
            "probe: no program": ["probe"],
            "probe: a program that does not exist": ["probe", "--", f"{folder}/nowhere"],
            "probe: a program that cannot be run": ["probe", "--", folder],
            "grafana alertmanager-config, an unknown profile": ["grafana", "alertmanager-config", "--profile", "none"],
        }
        codes: dict[str, Any] = {name: quietly(partial(app.run, run)) for name, run in asked.items()}
    raised = {
        "a wrong setting": errors.ConfigurationError("x"),
        "a missing extra": errors.MissingExtraError("x"),
        "a broker that cannot be reached": errors.BrokerAccessError("x", remedy="y"),
        "a broker that refuses": errors.BrokerError("x"),
        "an input that cannot be used": errors.SourceError("x"),
    }
    return codes | {name: quietly(partial(report, error)) for name, error in raised.items()}


def quietly(function: Callable[[], int]) -> int | str:
    """The result, or the code of SystemExit, with nothing printed."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            return function()
        except SystemExit as end:
            return end.code if end.code is not None else 0


def target_of(name: str) -> str:
    """`module:object` of a command, from its listing or its entry point."""
    points = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["entry-points"]
    return str(app.LISTINGS[name].target or points[app.GROUP][name])


def _typer_command(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A command and those below it; read from signatures, as typer does, whichever parser it brings."""
    module, _, attribute = target_of(name).partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        yield f"kernelcast {name}", dict(_parameters(found))
        return
    assert not found.registered_groups, f"{name} has groups below groups: describe them, too"
    above = found.registered_callback
    if above is not None and above.callback is not None and above.invoke_without_command is True:
        yield f"kernelcast {name}", dict(_parameters(above.callback))
    for one in found.registered_commands:
        assert one.callback is not None
        below = one.name or one.callback.__name__.replace("_", "-")
        yield f"kernelcast {name} {below}", dict(_parameters(one.callback))


def _parameters(callback: Callable[..., Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    hints = get_type_hints(callback, include_extras=True)
    position = 0
    for parameter in inspect.signature(callback).parameters.values():
        if hints[parameter.name] is typer.Context:
            continue
        kind, *extras = get_args(hints[parameter.name])
        (info,) = (one for one in extras if isinstance(one, typer.models.ParameterInfo))
        details = _details(kind, info, parameter.default)
        if isinstance(info, typer.models.ArgumentInfo):
            position += 1
            yield f"argument {position}", details
            continue
        for flag in _flags(info) or [_default_flag(parameter.name, kind)]:
            positive, _, negative = flag.partition("/")
            yield positive, details
            if negative:
                yield negative, {**details, "means": "the opposite"}


def _flags(info: Any) -> list[str]:
    """The names that an option was given; where it is annotated, typer keeps the first in place of a default."""
    first = [info.default] if isinstance(info.default, str) and info.default.startswith("-") else []
    return [*first, *(info.param_decls or ())]


def _default_flag(name: str, kind: Any) -> str:
    flag = name.replace("_", "-")
    return f"--{flag}/--no-{flag}" if kind is bool else f"--{flag}"


def _details(kind: Any, info: Any, default: Any) -> dict[str, Any]:
    members = [one for one in get_args(kind) if one is not type(None)]
    repeated = get_origin(kind) is list or any(get_origin(one) is list for one in members)
    text = inspect.formatannotation(kind).replace("pathlib.", "").replace("typing.", "").replace(" | None", "")
    details: dict[str, Any] = {"type": text, "help": info.help or ""}
    if default is inspect.Parameter.empty:
        details["required"] = True
    elif default is not None:
        details["default"] = default if isinstance(default, bool | int | float) else _relative(str(default))
    if repeated:
        details["repeated"] = True
    if info.envvar:
        details["environment"] = info.envvar
    return details


def _relative(text: str) -> str:
    """Text without this checkout's own path."""
    return text.replace(f"{REPOSITORY}/", "")


class _CapturedParserError(Exception):
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def _argparse_command(module: str) -> dict[str, Any]:
    main: Callable[[Sequence[str]], object] = importlib.import_module(module).main

    def capture(parser: argparse.ArgumentParser, *_arguments: object) -> None:
        raise _CapturedParserError(parser)

    with patch.object(argparse.ArgumentParser, "parse_known_args", capture):
        try:
            main([])
        except _CapturedParserError as captured:
            return dict(_actions(captured.parser))
    raise AssertionError(f"{module}.main no longer parses its arguments with argparse: describe it in another way")


def _actions(parser: argparse.ArgumentParser) -> Iterator[tuple[str, dict[str, Any]]]:
    position = 0
    for action in parser._actions:
        details: dict[str, Any] = {"help": (action.help or "") % {"default": action.default}}
        if action.default not in (None, argparse.SUPPRESS):
            details["default"] = action.default
        if action.choices:
            details["choices"] = [str(choice) for choice in action.choices]
        if action.nargs is not None:
            details["count"] = action.nargs
        if not action.option_strings:
            position += 1
            yield f"argument {position}", details
        for flag in action.option_strings:
            yield flag, details
