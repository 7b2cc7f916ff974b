"""`kernelcast config`: prints or writes the example settings and the other files for a deployment of this version."""

from pathlib import Path
from typing import Annotated, Final

import typer

from kernelcast.runtime.command import command
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.package_files import copy_files, package_files

EXAMPLE: Final = "kernelcast.yaml"
MINIMAL: Final = "minimal.yaml"

config = typer.Typer(
    help="Print the example settings, or write every file for a deployment.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def deployment_files() -> Path:
    """The folder of the files for a deployment: settings, systemd units, Kubernetes manifests, Kafka rights."""
    here = Path(__file__)
    return package_files(here.parent, here.parents[3] / "deploy")


@config.command("example")
@command
def example(
    name: Annotated[str, typer.Argument(help="One of the files that `kernelcast config files` writes.")] = EXAMPLE,
    *,
    minimal: Annotated[bool, typer.Option("--minimal", help="Only the settings that most sites change.")] = False,
) -> None:
    """Print the settings of every daemon with their defaults, or another of the files."""
    if minimal:
        name = MINIMAL
    folder = deployment_files()
    names = [str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    if name not in names:
        raise ConfigurationError(f"{name} is not an example; the examples are {', '.join(names)}")
    typer.echo((folder / name).read_text(encoding="utf-8"), nl=False)


@config.command("files")
@command
def files(output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Where the files go.")]) -> None:
    """Write settings, systemd units, Kubernetes manifests, Kafka rights, web configuration, image and compose files."""
    for path in copy_files(deployment_files(), output):
        typer.echo(path)
