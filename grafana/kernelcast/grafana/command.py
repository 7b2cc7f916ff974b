"""`kernelcast grafana`, `kernelcast rules` and `kernelcast scrape`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kernelcast.grafana import output, rules
from kernelcast.grafana.routes import config_command, files_command, push_command
from kernelcast.grafana.routes.options import ProfileName, exit_on_configuration_error, listed, write_files

_EXIT_DIFFERENT: Final = 1
_PLAIN: Final[dict[str, Any]] = {
    "no_args_is_help": True,
    "add_completion": False,
    "pretty_exceptions_enable": False,
}

grafana = typer.Typer(
    name="grafana", help="Dashboards, rules, and configurations for Prometheus, Alertmanager and Grafana.", **_PLAIN
)
grafana.command("files")(files_command.dashboards)
grafana.command("chart")(files_command.chart)
grafana.command("push")(push_command.push)
grafana.command("prometheus-config")(config_command.prometheus_config)
grafana.command("alertmanager-config")(config_command.alertmanager_config)

rules_application = typer.Typer(name="rules", help="Rules for Prometheus or its operator.", **_PLAIN)
rules_application.callback()(lambda: None)
rules_application.command("files")(files_command.rule_files)

scrape = typer.Typer(name="scrape", help="What Prometheus or its operator scrapes.", **_PLAIN)
scrape.callback()(lambda: None)
scrape.command("files")(files_command.scrape_files)


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
        chosen = replace(rules.profile_named(profile), dashboard_url=dashboard_url, runbooks_url=runbooks_url)
        if not check:
            listed(write_files(directory, output.tree(chosen)))
            return
    different = output.differences(directory, chosen)
    for path in different:
        typer.echo(
            f"{path} differs from the generated file; run: kernelcast grafana generate --output {directory}", err=True
        )
    if different:
        raise typer.Exit(_EXIT_DIFFERENT)


@grafana.command("runbooks")
def runbooks() -> None:
    """Print what to do when an alert fires: one heading for each, to publish where `--runbooks-url` says."""
    typer.echo(rules.runbooks(rules.PRODUCTION), nl=False)
