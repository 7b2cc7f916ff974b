"""Options and output that the commands of this package share."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from kernelcast.wire.errors import ConfigurationError

EXIT_RUN_TIME: Final = 1
EXIT_CONFIGURATION: Final = 2

ProfileName = Annotated[str, typer.Option("--profile", help="production, or demo, where minutes become seconds.")]
SiteFile = Annotated[Path | None, typer.Option("--site", metavar="FILE", help="Addresses and names of your site.")]
Output = Annotated[Path, typer.Option("--output", metavar="DIR", help="Where the files go.")]


def write_files(directory: Path, files: dict[str, str]) -> list[Path]:
    """Write files below a directory, made where needed; the paths written, in order.

    Standard error names each file that had another text.

    Raises:
        ConfigurationError: The directory cannot be written.
    """
    written = []
    for name, text in files.items():
        path = directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.read_bytes() != text.encode():
                typer.echo(f"{path}: replaced", err=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be written: {error.strerror}; give another --output") from error
        written.append(path)
    return written


def listed(paths: Iterable[Path]) -> None:
    """Print the paths that were written."""
    for path in paths:
        typer.echo(path)


@contextmanager
def exit_on_configuration_error() -> Iterator[None]:
    """Print a configuration error in one line each and exit with the code for configuration."""
    try:
        yield
    except ConfigurationError as error:
        for line in str(error).splitlines():
            typer.echo(f"kernelcast: {line}", err=True)
        raise typer.Exit(EXIT_CONFIGURATION) from error
