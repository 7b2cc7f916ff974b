"""`kernelcast grafana files`, `kernelcast grafana chart`, `kernelcast rules files`, `kernelcast scrape files`."""

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from kernelcast.grafana import dashboards as pages
from kernelcast.grafana import output, prometheus, provisioning, rules
from kernelcast.grafana.routes import kubernetes
from kernelcast.grafana.routes.options import Output, SiteFile, exit_on_configuration_error, listed, write_files
from kernelcast.grafana.site import Site, read
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.package_files import copy_files, package_files

_README: Final = "README.md"
_RUNBOOKS: Final = "runbooks.md"
_CLI: Final = "kernelcast.cli"
_CHART: Final = Path("helm", "kernelcast")


class DashboardFlavor(StrEnum):
    """A way in which Grafana gets dashboards."""

    PLAIN = "plain"
    PROVISIONING = "provisioning"
    CONFIGMAP = "configmap"


class RuleFlavor(StrEnum):
    """A form of rule files."""

    PROMETHEUS = "prometheus"
    PROMETHEUSRULE = "prometheusrule"


class ScrapeFlavor(StrEnum):
    """A form in which Prometheus learns what to scrape."""

    PROMETHEUS = "prometheus"
    SERVICEMONITOR = "servicemonitor"
    PODMONITOR = "podmonitor"


def dashboards(
    directory: Output,
    *,
    flavor: Annotated[
        DashboardFlavor, typer.Option(help="plain: all files of a site, with a README; or dashboards for Grafana.")
    ] = DashboardFlavor.PLAIN,
    site_file: SiteFile = None,
) -> None:
    """Write dashboards, ready to load.

    plain: dashboards, rules, configurations and runbooks of the site; its README.md says what to do with each. Files
    are replaced, except a configuration of Alertmanager with receivers of yours: the new one is FILE.new beside it.
    provisioning: the directory that Grafana reads at its start, with the data source. configmap: for Grafana's sidecar.
    """
    with exit_on_configuration_error():
        site = read(site_file)
        if flavor is DashboardFlavor.PLAIN:
            files = output.beside_own_receivers(_all_files(site), directory)
            listed(write_files(directory, files))
            for kept in (directory / name.removesuffix(output.NEW) for name in files if name.endswith(output.NEW)):
                typer.echo(
                    f"{kept} has receivers of yours and was kept; {kept}{output.NEW} has the new text: take over its "
                    "route and inhibit_rules",
                    err=True,
                )
        elif flavor is DashboardFlavor.CONFIGMAP:
            listed(write_files(directory, kubernetes.configmaps(pages.render(site.runbooks_url), site)))
        else:
            files = {f"provisioning/{name}": text for name, text in provisioning.render(site).items()}
            files |= {f"dashboards/{name}": text for name, text in pages.render(site.runbooks_url).items()}
            listed(write_files(directory, files))


def _all_files(site: Site) -> dict[str, str]:
    package = Path(__file__).parents[1]
    readme = package_files(package, package.parents[1]) / _README
    return {
        _README: readme.read_text(encoding="utf-8"),
        _RUNBOOKS: rules.runbooks(site.rules_profile),
        **output.tree(site),
    }


def rule_files(
    directory: Output,
    *,
    flavor: Annotated[RuleFlavor, typer.Option(help="For Prometheus, or its operator.")] = RuleFlavor.PROMETHEUS,
    native: Annotated[bool, typer.Option("--native", help="Recordings of native histograms.")] = False,
    site_file: SiteFile = None,
) -> None:
    """Write recording rules in one dialect, and alerts."""
    with exit_on_configuration_error():
        site = read(site_file)
        files = _rules_of(site, native=native)
        if flavor is RuleFlavor.PROMETHEUSRULE:
            files = kubernetes.prometheus_rules(files, site)
        listed(write_files(directory, files))


def scrape_files(
    directory: Output,
    *,
    flavor: Annotated[ScrapeFlavor, typer.Option(help="For Prometheus, or its operator.")] = ScrapeFlavor.PROMETHEUS,
    site_file: SiteFile = None,
) -> None:
    """Write what Prometheus scrapes: a complete configuration, or a monitor for each service."""
    with exit_on_configuration_error():
        site = read(site_file)
        if flavor is ScrapeFlavor.PROMETHEUS:
            files = {prometheus.FILE: prometheus.render(site)}
        else:
            kind = "ServiceMonitor" if flavor is ScrapeFlavor.SERVICEMONITOR else "PodMonitor"
            files = kubernetes.monitors(kind, site)
        listed(write_files(directory, files))


def chart(directory: Output, *, site_file: SiteFile = None) -> None:
    """Write the Helm chart with this version's dashboards and the site's rules in it."""
    with exit_on_configuration_error():
        site = read(site_file)
        written = copy_files(_deployment() / _CHART, directory)
        files = {f"files/dashboards/{name}": text for name, text in pages.render(site.runbooks_url).items()}
        files |= {f"files/rules/{name}": text for name, text in _rules_of(site, native=False).items()}
        listed([*written, *write_files(directory, files)])


def _rules_of(site: Site, *, native: bool) -> dict[str, str]:
    files = rules.render(site.rules_profile)
    del files[rules.CLASSIC_FILE if native else rules.NATIVE_FILE]
    return files


def _deployment() -> Path:
    """The folder of deployment files, which the command line's package brings.

    Raises:
        ConfigurationError: It is not installed.
    """
    found = find_spec(_CLI)
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError("kernelcast.cli is not installed; install kernelcast again")
    package = Path(next(iter(found.submodule_search_locations)))
    return package_files(package, package.parents[2] / "deploy")
