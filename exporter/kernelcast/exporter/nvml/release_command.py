"""`kernelcast exporter release` and `resume`: take GPUs from a running exporter for a reset, and give them back."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from kernelcast.exporter.nvml import control
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.command import command
from kernelcast.runtime.settings.service import load
from kernelcast.wire.errors import ConfigurationError

ANSWER_SECONDS: Final = 15.0
"""Time for an answer, beside the interval and the time limit of an NVML call: a process may have to be killed."""
_SECONDS: Final[Mapping[str, int]] = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"([0-9]+)([smhd])")

Gpu = Annotated[str, typer.Argument(metavar="GPU", help="Index or UUID, as nvidia-smi -L lists them; or all.")]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The running exporter's settings file (YAML).")
]
StateDirectory = Annotated[
    str | None, typer.Option("--state.directory", metavar="DIR", help="The running exporter's, if it got this option.")
]
Length = Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 90s, 10m, 2h; a week at most.")]


@command
def release(gpu: Gpu, *, length: Length = "10m", config: Config = None, state_directory: StateDirectory = None) -> None:
    """Close a GPU for a time, so that it can be reset, divided by MIG, or unbound from the driver."""
    seconds = _seconds(length)
    gpus = _ask(config, state_directory, {"do": control.RELEASE, "gpu": gpu, "seconds": seconds})
    typer.echo(f"released for {length}: {_listed(gpus)}. No process of the exporter has it open now.")
    typer.echo(f"To give it back earlier: kernelcast exporter resume {gpu}")


@command
def resume(gpu: Gpu, *, config: Config = None, state_directory: StateDirectory = None) -> None:
    """Give a released GPU back to the exporter before its time is over."""
    gpus = _ask(config, state_directory, {"do": control.RESUME, "gpu": gpu})
    typer.echo(f"given back: {_listed(gpus)}. The exporter reads it from the next interval on.")


def _seconds(length: str) -> int:
    matched = _DURATION.fullmatch(length)
    seconds = int(matched[1]) * _SECONDS[matched[2]] if matched else 0
    if not 0 < seconds <= control.LONGEST_SECONDS:
        raise ConfigurationError(f"--for is {length}; give a number with s, m, h or d, such as 10m, a week at most")
    return seconds


def _ask(config: Path | None, state_directory: str | None, request: dict[str, object]) -> list[dict[str, str]]:
    flags = {"state_directory": state_directory}
    settings = load("exporter", ExporterSettings, path=config, flags=flags, environ=os.environ)
    if settings.state_directory is None:
        raise ConfigurationError(
            "exporter.state_directory is null, and the exporter is reached through it; set one, or stop the exporter"
        )
    timeout_seconds = settings.interval_seconds + settings.nvml_timeout_seconds + ANSWER_SECONDS
    return control.ask(settings.state_directory, request, timeout_seconds=timeout_seconds)


def _listed(gpus: Iterable[Mapping[str, str]]) -> str:
    return ", ".join(f"GPU {one['index']} ({one['uuid']}, /dev/{one['device'] or 'nvidia*'})" for one in gpus)
