"""All generated files of a site as one tree, and its comparison with a directory.

`kernelcast grafana files` writes the tree of a site; `python -m lab.grafana generate` that of a checkout.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from kernelcast.grafana import alertmanager, dashboards, people, prometheus, provisioning, rules
from kernelcast.grafana.site import TRIAL, Site

COMMITTED: Final = Path("grafana")
"""Where a checkout keeps the production profile's files."""
NEW: Final = ".new"
"""Ending of a file that is written beside one with somebody's receivers."""
_WITH_RECEIVERS: Final = (f"alertmanager/{alertmanager.FILE}", f"alertmanager/{people.FILE}")


def tree(site: Site = TRIAL) -> dict[str, str]:
    """Every generated file, by its path relative to the output directory."""
    profile, server, access = site.rules_profile, site.prometheus, site.bridge.access
    webhook = alertmanager.webhook_of(site)
    if server.rules_directory == TRIAL.prometheus.rules_directory:
        server = replace(server, rules_directory="../rules")
    parts = {
        "dashboards": dashboards.render(site.runbooks_url),
        "rules": rules.render(profile),
        "alertmanager": {
            alertmanager.FILE: alertmanager.render(webhook, profile, access),
            people.FILE: people.render(webhook, profile, access),
            people.TEMPLATE_FILE: people.TEMPLATE,
        },
        "prometheus": {prometheus.FILE: prometheus.render(replace(site, prometheus=server))},
        "provisioning": provisioning.render(site),
    }
    return {f"{folder}/{name}": text for folder, files in parts.items() for name, text in files.items()}


def beside_own_receivers(files: dict[str, str], directory: Path) -> dict[str, str]:
    """The files, where one that would replace somebody's receivers is written beside it, as `FILE.new`.

    Args:
        files: Generated files by their path below `directory`.
        directory: Where they are to be written.
    """
    named = {name: text for name, text in files.items() if name in _WITH_RECEIVERS}
    held = {name: _held(directory / name) for name in named}
    kept = {name for name, text in held.items() if text and alertmanager.has_own_receivers(text, named[name])}
    return {f"{name}{NEW}" if name in kept else name: text for name, text in files.items()}


def differences(directory: Path, site: Site) -> tuple[Path, ...]:
    """The files that are missing below `directory` or hold something else than would be written."""
    return tuple(directory / name for name, text in tree(site).items() if _held(directory / name) != text)


def _held(path: Path) -> str | None:
    """A file's text; None where there is no file of text that can be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
