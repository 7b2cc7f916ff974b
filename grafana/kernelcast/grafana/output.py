"""All generated files as one tree, and its comparison with a directory: `python -m lab.grafana generate`."""

from pathlib import Path
from typing import Final

from kernelcast.grafana import alertmanager, dashboards, people, prometheus, provisioning, rules
from kernelcast.grafana.site import Prometheus, Site

COMMITTED: Final = Path("grafana")
"""Where a checkout keeps the production profile's files."""


def tree(profile: rules.Profile) -> dict[str, str]:
    """Every generated file, by its path relative to the output directory."""
    files = {f"dashboards/{name}": text for name, text in dashboards.render(profile.runbooks_url).items()}
    files |= {f"rules/{name}": text for name, text in rules.render(profile).items()}
    files[f"alertmanager/{alertmanager.FILE}"] = alertmanager.render(profile=profile)
    files[f"alertmanager/{people.FILE}"] = people.render(profile=profile)
    files[f"alertmanager/{people.TEMPLATE_FILE}"] = people.TEMPLATE
    interval = min(Prometheus().scrape_interval_seconds, profile.evaluation_seconds)
    files[f"prometheus/{prometheus.FILE}"] = prometheus.render(
        Site(prometheus=Prometheus(scrape_interval_seconds=interval, rules_directory="../rules"))
    )
    files |= {f"provisioning/{name}": text for name, text in provisioning.render().items()}
    return files


def differences(directory: Path, profile: rules.Profile) -> tuple[Path, ...]:
    """The files that are missing below `directory` or hold something else than would be written."""
    return tuple(directory / name for name, text in tree(profile).items() if _held(directory / name) != text)


def _held(path: Path) -> str | None:
    """A file's text; None where there is no file of text that can be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
