"""`python -m lab.grafana`: writes or compares the generated files of a checkout, and prints the runbooks."""

from pathlib import Path
from typing import Annotated, Final

import typer

from kernelcast.grafana import output, rules
from kernelcast.grafana.routes.options import ProfileName, exit_on_configuration_error, listed, write_files
from kernelcast.grafana.site import Prometheus, Site

_EXIT_DIFFERENT: Final = 1

grafana = typer.Typer(
    help="Files of a checkout that are generated from the catalogue.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@grafana.command()
def generate(
    directory: Annotated[Path, typer.Option("--output", help="Where the files go.")] = output.COMMITTED,
    profile: ProfileName = rules.PRODUCTION.name,
    dashboard_url: Annotated[str, typer.Option(help="The dashboard of kernels in your Grafana; none: no links.")] = "",
    runbooks_url: Annotated[
        str, typer.Option(help="Where the runbooks are: a page, or https://BRIDGE/runbooks/.")
    ] = rules.RUNBOOKS_URL,
    *,
    check: Annotated[bool, typer.Option("--check", help="Write nothing; exit 1 where a file differs.")] = False,
) -> None:
    """Write dashboards, rules, and example configurations."""
    with exit_on_configuration_error():
        scraped_seconds = min(Prometheus().scrape_interval_seconds, rules.profile_named(profile).evaluation_seconds)
        scraped = Prometheus(scrape_interval_seconds=scraped_seconds)
        site = Site(profile, dashboard_url, runbooks_url, prometheus=scraped)
        if not check:
            listed(write_files(directory, output.tree(site)))
            return
    different = output.differences(directory, site)
    for path in different:
        typer.echo(
            f"{path} differs from the generated file; run: python -m lab.grafana generate --output {directory}",
            err=True,
        )
    if different:
        raise typer.Exit(_EXIT_DIFFERENT)


@grafana.command("runbooks")
def runbooks() -> None:
    """Print `docs/runbooks.md`: a heading and the first steps for each alert."""
    typer.echo(rules.runbooks(rules.PRODUCTION), nl=False)


if __name__ == "__main__":
    grafana()
