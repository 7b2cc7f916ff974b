"""`kernelcast grafana prometheus-config` and `alertmanager-config`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from kernelcast.grafana import alertmanager, prometheus, rules
from kernelcast.grafana.routes.options import ProfileName, SiteFile, exit_on_configuration_error
from kernelcast.grafana.site import OPEN, TRIAL, ServerAccess, Site, Targets, access_problems, contradictions, read
from kernelcast.wire.errors import ConfigurationError

Scheme = Annotated[str, typer.Option("--scheme", metavar="http|https", help="Of every daemon; https with --ca-file.")]
CaFile = Annotated[str, typer.Option("--ca-file", metavar="FILE", help="Authority that signed their certificates.")]
User = Annotated[str, typer.Option("--username", help="Their user.")]
PasswordFile = Annotated[str, typer.Option("--password-file", metavar="FILE", help="The file that has its password.")]
Addresses = list[str] | None
T = TypeVar("T")


def prometheus_config(  # noqa: PLR0913  one per option
    *,
    bridges: Annotated[
        Addresses, typer.Option("--bridge", metavar="HOST:PORT", help="A bridge; may be repeated.")
    ] = None,
    exporters: Annotated[Addresses, typer.Option("--exporter", metavar="HOST:PORT", help="An exporter.")] = None,
    predictors: Annotated[Addresses, typer.Option("--predictor", metavar="HOST:PORT", help="A predictor.")] = None,
    alertmanager_address: Annotated[
        str | None, typer.Option("--alertmanager", metavar="HOST:PORT", help="Where alerts go.")
    ] = None,
    rules_directory: Annotated[
        Path | None, typer.Option("--rules", metavar="DIR", help="The directory that holds the rule files.")
    ] = None,
    scrape_seconds: Annotated[
        int, typer.Option("--scrape-interval", min=1, help="In seconds.")
    ] = TRIAL.prometheus.scrape_interval_seconds,
    scheme: Scheme = "",
    ca_file: CaFile = "",
    username: User = "",
    password_file: PasswordFile = "",
    site_file: SiteFile = None,
) -> None:
    """Print a configuration for Prometheus: scraping, rules in the classic dialect, alerting.

    Without any address and without `--site` it is for all services on this machine; otherwise for those that are named.
    """
    alertmanagers = [alertmanager_address] if alertmanager_address else None
    named = {"bridge": bridges, "exporter": exporters, "predictor": predictors, "alertmanager": alertmanagers}
    with exit_on_configuration_error():
        site = _of_addresses(read(site_file), named, only=site_file is None)
        site = _secured(site, _access(scheme, ca_file, username, password_file))
        server, default = site.prometheus, TRIAL.prometheus.scrape_interval_seconds
        server = replace(
            server,
            scrape_interval_seconds=_chosen(scrape_seconds, default, server.scrape_interval_seconds),
            rules_directory=str(rules_directory or server.rules_directory),
        )
        site = _checked(replace(site, prometheus=server))
    typer.echo(prometheus.render(site), nl=False)


def alertmanager_config(
    *,
    webhook_url: Annotated[str, typer.Option("--webhook-url", help="The bridge's.")] = alertmanager.WEBHOOK_URL,
    profile: ProfileName = rules.PRODUCTION.name,
    ca_file: CaFile = "",
    username: User = "",
    password_file: PasswordFile = "",
    site_file: SiteFile = None,
) -> None:
    """Print a configuration for Alertmanager: routing, inhibition, the bridge's webhook.

    With `--site` the address of the site's first bridge and its access are the defaults.
    """
    with exit_on_configuration_error():
        site = read(site_file)
        url = _chosen(webhook_url, alertmanager.WEBHOOK_URL, alertmanager.webhook_of(site))
        access = _access(url.partition(":")[0], ca_file, username, password_file) if ca_file or username else None
        site = _checked(replace(site, profile=_chosen(profile, rules.PRODUCTION.name, site.profile)))
        text = alertmanager.render(url, site.rules_profile, access or site.bridge.access)
    typer.echo(text, nl=False)


def _chosen(option: T, default: T, of_site: T) -> T:
    """The value of an option where it is not the default, and the site's otherwise."""
    return option if option != default else of_site


def _checked(site: Site) -> Site:
    """The site, of which options have changed values.

    Raises:
        ConfigurationError: They are values that no tool would take.
    """
    problems = contradictions(site)
    if problems:
        raise ConfigurationError("\n".join(problems))
    return site


def _of_addresses(site: Site, named: dict[str, Addresses], *, only: bool) -> Site:
    """A site with the addresses that were given; with `only`, services without one are left out if a daemon's was."""
    addresses = {name: tuple(targets) for name, targets in named.items() if targets}
    only = only and not addresses.keys() <= {"alertmanager"}
    for name in named:
        service: Targets = getattr(site, name)
        if name in addresses:
            site = replace(site, **{name: replace(service, targets=addresses[name])})  # type: ignore[arg-type]
        elif only:
            site = replace(site, **{name: Targets()})  # type: ignore[arg-type]
    return site


def _secured(site: Site, access: ServerAccess) -> Site:
    """A site whose daemons are reached as the options say; Alertmanager's access is the site file's."""
    if access == OPEN:
        return site
    daemons = {name: replace(getattr(site, name), access=access) for name in ("bridge", "exporter", "predictor")}
    return replace(site, **daemons)


def _access(scheme: str, ca_file: str, username: str, password_file: str) -> ServerAccess:
    """Make an access of options.

    Raises:
        ConfigurationError: They contradict each other.
    """
    access = ServerAccess(scheme or ("https" if ca_file else "http"), ca_file, username, password_file)
    problems = access_problems(access)
    if problems:
        raise ConfigurationError("; ".join(problems))
    return access
