"""Finds commands by name and runs them; nothing is imported before it is asked for, so that `--help` is instant.

`__main__` calls `run` with the command line; the demo calls it to render configurations. Services announce their
commands as entry points of the group `kernelcast.commands`: a plain function for typer, or a `typer.Typer` with
sub-commands.
"""

import difflib
import errno
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final

from kernelcast.cli.early_stop import UNTIL_STOPPED, exiting_on_sigterm
from kernelcast.cli.examples import add_examples, examples_of
from kernelcast.runtime.exits import EXIT_CONFIGURATION, EXIT_RUN_TIME, report
from kernelcast.runtime.lean_imports import import_structlog_without_rich
from kernelcast.wire.errors import ConfigurationError, KernelcastError, MissingExtraError

GROUP: Final = "kernelcast.commands"
"""Group of entry points."""
PROGRAM: Final = "kernelcast"
EXIT_INTERRUPTED: Final = 130
"""As of a shell whose command SIGINT has ended."""
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk; of standard output where they name no file."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A command as `--help` shows it.

    Attributes:
        help: One line for people. It is written here, because reading it from the command would import the command.
        extra: The extra (`pip install 'kernelcast[…]'`) that installs everything that the command needs.
        target: `module:object` of a command that is no entry point of a service.
        plain: Whether it parses its arguments itself and needs no extra: a function of them that returns the exit code.
    """

    help: str
    extra: str
    target: str = ""
    plain: bool = False


LISTINGS: Final[Mapping[str, Listing]] = MappingProxyType(
    {
        "demo": Listing("Run the whole loop on this machine and watch it.", "all"),
        "probe": Listing("Run a program with the probe in it.", "probe", "kernelcast.probe.command:main", plain=True),
        "exporter": Listing("The node's daemon: GPUs and programs to Kafka and /metrics.", "exporter"),
        "bridge": Listing("Kafka to Prometheus, and Alertmanager's alerts to Kafka.", "bridge"),
        "predictor": Listing("Forecasts, predicted degradation and tuning hints.", "predictor"),
        "top": Listing(
            "Watch GPUs and kernels of an exporter or a bridge, live.", "runtime", "kernelcast.cli.top.command:top"
        ),
        "doctor": Listing("Check this machine and say what to do.", "runtime", "kernelcast.cli.doctor.command:doctor"),
        "topics": Listing(
            "List Kafka's topics, or create and correct them.", "runtime", "kernelcast.cli.topics:topics"
        ),
        "grafana": Listing("Dashboards for Grafana, with rules and configurations: write or push them.", "grafana"),
        "findings": Listing(
            "List the predictor's findings, and answer them.", "runtime", "kernelcast.cli.findings:findings"
        ),
        "hints": Listing(
            "List hints and their outcomes, explain them, and stop trials.",
            "runtime",
            "kernelcast.cli.hints.command:hints",
        ),
        "backtest": Listing("Forecasts, anomalies and alerts of recorded series, from CSV.", "predictor"),
        "compile": Listing(
            "Compile what bridge and predictor run, before they start.",
            "bridge",
            "kernelcast.bridge.compile_command:compile_",
        ),
        "replay": Listing("Publish a Kineto or Nsight Systems recording as if it ran now.", "replay"),
        "simulate": Listing("Publish simulated GPUs with known faults.", "replay"),
        "rules": Listing("Rules for Prometheus or its operator.", "grafana"),
        "scrape": Listing("Scrape configuration for Prometheus, or monitors for its operator.", "grafana"),
        "explain": Listing(
            "Ask a running predictor about one series.", "predictor", "kernelcast.predictor.explain_command:explain"
        ),
        "config": Listing("Example settings and deployment files.", "runtime", "kernelcast.cli.config:config"),
        "health": Listing(
            "Ask a daemon whether it works, for container engines.", "probe", "kernelcast.cli.health:main", plain=True
        ),
    }
)
FIRST: Final = frozenset(
    {"demo", "probe", "exporter", "bridge", "predictor", "top", "doctor", "topics", "grafana", "findings", "hints"}
)
"""What users need first; `--help` shows the other commands below them."""


def run(arguments: Sequence[str], *, found: Iterable[EntryPoint] | None = None) -> int:
    """Run the command that the arguments name.

    Args:
        arguments: As in `sys.argv`, without the program.
        found: The commands that are installed; None looks them up.

    Returns:
        The exit code: 0, 1 for a failure at run time, 2 for configuration or usage, 130 after Ctrl-C.
    """
    commands = _commands(found if found is not None else entry_points(group=GROUP))
    try:
        code = _dispatch(arguments, commands)
        sys.stdout.flush()  # a failure at the interpreter's exit would have another exit code
    except KernelcastError as error:
        return report(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        broken = isinstance(error, BrokenPipeError)  # the reader of our output has ended (`| head`)
        if not broken and (error.errno not in FULL or error.filename is not None):
            raise
        # Python would write the rest at exit, and fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        full = KernelcastError(f"the output cannot be written: {error.strerror}")
        return EXIT_RUN_TIME if broken else report(full)
    return code


def _commands(found: Iterable[EntryPoint]) -> dict[str, str]:
    """Return the targets of all commands by name: first those of the listing, in its order, then the others."""
    installed = {point.name: point.value for point in found}
    listed = {name: listing.target or installed.get(name, "") for name, listing in LISTINGS.items()}
    return {**listed, **{name: installed[name] for name in sorted(installed.keys() - listed.keys())}}


def _dispatch(arguments: Sequence[str], commands: Mapping[str, str]) -> int:
    name = arguments[0] if arguments else "--help"
    if name in {"--help", "-h", "help"}:
        sys.stdout.write(_help(commands))
    elif name == "--version":
        sys.stdout.write(f"{PROGRAM} {_version()}\n")
    elif name in commands:
        return _invoke(name, commands[name], arguments[1:])
    else:
        near = difflib.get_close_matches(name, commands, n=1)
        hint = f"did you mean {near[0]}?" if near else f"commands are {', '.join(commands)}"
        raise ConfigurationError(f"{name} is not a command; {hint}")
    if find_spec("typer") is None:
        raise MissingExtraError(
            "only the probe is installed; commands need more: pip install 'kernelcast[all]', or one extra of "
            "exporter, replay, bridge, predictor, grafana"
        )
    return 0


def _invoke(name: str, target: str, arguments: Sequence[str]) -> int:
    if not target:
        raise MissingExtraError(f"{PROGRAM} {name} is not part of this installation; install kernelcast again")
    if name in LISTINGS and LISTINGS[name].plain:
        code: int = _load(target)(arguments)
        return code
    until_stopped = name in UNTIL_STOPPED
    try:
        with exiting_on_sigterm() if until_stopped else nullcontext():
            if until_stopped:
                import_structlog_without_rich()
            import typer  # noqa: PLC0415 - a bare install has none

            command = _load(target)
            if not isinstance(command, typer.Typer):
                app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
                app.command()(command)
                command = app
            parser = typer.main.get_command(command)
            add_examples(parser, name)
            parser(list(arguments), prog_name=f"{PROGRAM} {name}")
    except ModuleNotFoundError as error:
        missing = _missing_extra(name, error)
        if name not in LISTINGS or "--help" not in arguments:
            raise missing from error
        sys.stdout.write(_help_without_options(name, missing))
    except SystemExit as end:
        return _exit_code(end)
    return 0


def _load(target: str) -> Callable[..., Any]:
    module, _, attribute = target.partition(":")
    command: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return command


def _missing_extra(name: str, error: ModuleNotFoundError) -> MissingExtraError:
    module = error.name or "a module"
    if module.partition(".")[0] == PROGRAM:
        return MissingExtraError(f"{PROGRAM} {name} is not part of this installation: {module} is missing")
    extra = LISTINGS[name].extra if name in LISTINGS else "all"
    return MissingExtraError(f"{PROGRAM} {name} needs {module}: pip install '{PROGRAM}[{extra}]'")


def _help_without_options(name: str, missing: MissingExtraError) -> str:
    """Help of a command whose extra is not installed: its options are in modules that cannot be imported."""
    examples = [f"  {PROGRAM} {example}" for example in examples_of(name)]
    usage = f"Usage: {PROGRAM} {name} [OPTIONS]"
    return "\n".join((usage, "", LISTINGS[name].help, "", *examples, "", f"{missing}", ""))


def _exit_code(end: SystemExit) -> int:
    if end.code is None:
        return 0
    return end.code if isinstance(end.code, int) else EXIT_CONFIGURATION


def _help(commands: Mapping[str, str]) -> str:
    width = max(map(len, commands)) + 2
    lines = [f"Usage: {PROGRAM} COMMAND [OPTIONS]", "", "GPU kernels over Kafka into Prometheus and Grafana.", ""]
    for heading, chosen in (("Commands:", FIRST), ("More:", commands.keys() - FIRST)):
        lines.append(heading)
        for name in (one for one in commands if one in chosen):
            help_line = LISTINGS[name].help if name in LISTINGS else f"From {commands[name]}."
            lines.append(f"  {name:<{width}}{help_line}")
        lines.append("")
    lines += [f"`{PROGRAM} COMMAND --help` says more; `{PROGRAM} --version` says which this is.", ""]
    return "\n".join(lines)


def _version() -> str:
    """The version, and the commit where it is known."""
    from kernelcast.cli.revision import commit  # noqa: PLC0415  for this option alone

    try:
        number = version("kernelcast")
    except PackageNotFoundError:
        number = "unknown"
    found = commit()
    return f"{number} (commit {found})" if found else number
