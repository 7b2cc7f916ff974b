"""`kernelcast grafana`, `kernelcast rules` and `kernelcast scrape`."""

from typing import Any, Final

import typer

from kernelcast.grafana.routes import config_command, files_command, push_command

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
