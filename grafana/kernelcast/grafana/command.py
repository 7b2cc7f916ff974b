"""`kernelcast grafana`: dashboards, rules, and ready configurations for Prometheus and Alertmanager."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from kernelcast.grafana import alertmanager, output, prometheus, rules
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.package_files import copy_files, package_files

_EXIT_DIFFERENT: Final = 1
_EXIT_CONFIGURATION: Final = 2
_CODE: Final = "kernelcast"
"""Beside the files in a checkout."""
_RUNBOOKS: Final = "runbooks.md"

grafana = typer.Typer(
    name="grafana",
    help="Dashboards, rules, and configurations for Prometheus, Alertmanager and Grafana.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ProfileName = Annotated[str, typer.Option("--profile", help="production, or demo, where minutes become seconds.")]


@grafana.command()
def generate(
    directory: Annotated[Path, typer.Option("--output", help="Where the files go.")] = output.COMMITTED,
    profile: ProfileName = rules.PRODUCTION.name,
    dashboard_url: Annotated[str, typer.Option(help="The dashboard of kernels in your Grafana.")] = rules.DASHBOARD_URL,
    runbooks_url: Annotated[str, typer.Option(help="Where docs/runbooks.md is published.")] = rules.RUNBOOKS_URL,
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 where a file differs.")] = False,
) -> None:
    """Write dashboards, rules, and example configurations."""
    chosen = replace(_profile(profile), dashboard_url=dashboard_url, runbooks_url=runbooks_url)
    if not check:
        with _exit_on_configuration_error():
            written = output.write(directory, chosen)
        for path in written:
            typer.echo(path)
        return
    different = output.differences(directory, chosen)
    for path in different:
        typer.echo(
            f"{path} differs from the generated file; run: kernelcast grafana generate --output {directory}", err=True
        )
    if different:
        raise typer.Exit(_EXIT_DIFFERENT)


@grafana.command("files")
def files(
    directory: Annotated[Path, typer.Option("--output", metavar="DIR", help="Where the files go.")],
) -> None:
    """Write the files that come with this version, ready to load: dashboards, rules with their tests, examples.

    `generate` makes the same dashboards and rules with addresses and a profile of your choice.
    """
    here = Path(__file__)
    with _exit_on_configuration_error():
        source = package_files(here.parent, here.parents[2])
        written = copy_files(source, directory, without=(_CODE,))
    runbooks_file = directory / _RUNBOOKS
    runbooks_file.write_text(rules.runbooks(rules.PRODUCTION), encoding="utf-8")
    for path in (*written, runbooks_file):
        typer.echo(path)


@grafana.command("runbooks")
def runbooks() -> None:
    """Print what to do when an alert fires: one heading for each, to publish where `--runbooks-url` says."""
    typer.echo(rules.runbooks(rules.PRODUCTION), nl=False)


@grafana.command("prometheus-config")
def prometheus_config(
    bridges: Annotated[list[str], typer.Option("--bridge", metavar="HOST:PORT", help="A bridge; may be repeated.")],
    rules_directory: Annotated[Path, typer.Option("--rules", help="The directory that holds the rule files.")],
    alertmanager_address: Annotated[
        str | None, typer.Option("--alertmanager", metavar="HOST:PORT", help="Where alerts go; none without it.")
    ] = None,
    scrape_seconds: Annotated[int, typer.Option("--scrape-interval", min=1, help="In seconds.")] = 15,
    exporters: Annotated[
        list[str] | None, typer.Option("--exporter", metavar="HOST:PORT", help="An exporter, for its own health.")
    ] = None,
    predictors: Annotated[
        list[str] | None, typer.Option("--predictor", metavar="HOST:PORT", help="A predictor, for its own health.")
    ] = None,
) -> None:
    """Print a configuration for Prometheus: scraping, rules in the classic dialect, alerting."""
    files = [str(rules_directory / name) for name in (rules.CLASSIC_FILE, rules.ALERTS_FILE)]
    daemons = prometheus.Daemons(tuple(exporters or ()), tuple(predictors or ()))
    typer.echo(prometheus.render(bridges, files, alertmanager_address, scrape_seconds, daemons), nl=False)


@grafana.command("alertmanager-config")
def alertmanager_config(
    webhook_url: Annotated[str, typer.Option("--webhook-url", help="The bridge's.")] = alertmanager.WEBHOOK_URL,
    profile: ProfileName = rules.PRODUCTION.name,
) -> None:
    """Print a configuration for Alertmanager: routing, inhibition, the bridge's webhook."""
    with _exit_on_configuration_error():
        text = alertmanager.render(webhook_url, _profile(profile))
    typer.echo(text, nl=False)


def _profile(name: str) -> rules.Profile:
    with _exit_on_configuration_error():
        return rules.profile_named(name)


@contextmanager
def _exit_on_configuration_error() -> Iterator[None]:
    """Prints a configuration error in one line and exits with the code for configuration."""
    try:
        yield
    except ConfigurationError as error:
        typer.echo(f"kernelcast: {error}", err=True)
        raise typer.Exit(_EXIT_CONFIGURATION) from error
