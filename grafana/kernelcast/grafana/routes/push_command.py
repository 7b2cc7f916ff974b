"""The command `kernelcast grafana push`: reads options and token, and prints the changes that `push` makes."""

import os
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Final

import typer

from kernelcast.grafana import dashboards
from kernelcast.grafana.routes.grafana_api import GrafanaApi, GrafanaError
from kernelcast.grafana.routes.options import EXIT_RUN_TIME, SiteFile, exit_on_configuration_error
from kernelcast.grafana.routes.push import Push
from kernelcast.grafana.site import read
from kernelcast.wire.errors import ConfigurationError

TOKEN_VARIABLE: Final = "KERNELCAST_GRAFANA_TOKEN"  # noqa: S105  a name
_DONE: Final = {"create": "created", "replace": "replaced", "move": "moved", "delete": "deleted"}


def push(
    *,
    url: Annotated[str, typer.Option("--url", help="Grafana's address; by default the site's.")] = "",
    folder: Annotated[str, typer.Option("--folder", metavar="TITLE", help="Made where it is missing.")] = "",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help=f"A service account's token; or set {TOKEN_VARIABLE}.")
    ] = None,
    ca_file: Annotated[str, typer.Option("--ca-file", help="Authority that signed Grafana's certificate.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the differences and write nothing.")] = False,
    site_file: SiteFile = None,
) -> None:
    """Write the dashboards into a folder of a running Grafana, and delete those that no longer exist.

    The second time it changes nothing. Dashboards whose uid does not begin with `kernelcast-` are never deleted.
    """
    with exit_on_configuration_error():
        site = read(site_file)
        address = url or site.grafana.url
        if not address:
            raise ConfigurationError("Grafana's address is not known; give --url, or grafana.url in the --site file")
        api = GrafanaApi(address, _token(token_file), ca_file=ca_file or site.grafana.ca_file)
    try:
        _push(Push(api, folder or site.grafana.folder, dashboards.render(site.runbooks_url)), dry_run=dry_run)
    except GrafanaError as error:
        typer.echo(f"kernelcast: {error}", err=True)
        raise typer.Exit(EXIT_RUN_TIME) from error


def _push(job: Push, *, dry_run: bool) -> None:
    changes = job.changes()
    if dry_run:
        for change in changes:
            typer.echo(f"would {change.action} {change.uid}")
            if change.diff:
                typer.echo(change.diff)
    else:
        for change in job.apply(changes, version=_version()):
            typer.echo(f"{_DONE[change.action]} {change.uid}")
    if not changes:
        typer.echo("Grafana has these dashboards already")


def _token(path: Path | None) -> str:
    """Read the token from its file or the environment; empty if there is none.

    Raises:
        ConfigurationError: The file cannot be read, or is no token.
    """
    if path is None:
        return os.environ.get(TOKEN_VARIABLE, "")
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read; give another --token-file") from error
    if not token or not token.isascii() or any(letter.isspace() for letter in token):
        raise ConfigurationError(f"{path} does not hold one token; write the token alone into it")
    return token


def _version() -> str:
    try:
        return version("kernelcast")
    except PackageNotFoundError:
        return "unknown"
