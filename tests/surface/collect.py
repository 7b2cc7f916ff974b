"""Collects the public surface: one description for each file in `frozen/`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.surface import commands, grafana, metrics, packaging, probe, services, settings, wire

FROZEN: Final = Path(__file__).parent / "frozen"

SURFACES: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "alerts and rules": grafana.alerts_and_rules,
    "catalogue": metrics.catalogue,
    "commands": commands.commands,
    "dashboards": grafana.dashboards,
    "exit codes": commands.exit_codes,
    "kafka": services.kafka,
    "packaging": packaging.packaging,
    "probe": probe.probe_names,
    "services": services.services,
    "settings": settings.settings,
    "wire": wire.wire,
}


def frozen_file(surface: str) -> Path:
    """The path of the file that describes a surface."""
    return FROZEN / f"{surface.replace(' ', '_')}.yaml"
