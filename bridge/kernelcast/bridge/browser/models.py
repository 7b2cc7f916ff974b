"""The dashboards as generation has written them, without what only Grafana's editor needs."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.package_files import package_files

_HERE: Final = Path(__file__)
_PACKAGE: Final = _HERE.parents[2] / "grafana"
"""Where a wheel has Grafana's files; it is another package's folder, but only files are read from it."""
_CHECKOUT: Final = _HERE.parents[4] / "grafana"
_EDITOR_KEYS: Final = frozenset(
    {"datasource", "definition", "editorMode", "pluginVersion", "schemaVersion", "timepicker"}
)
"""Keys that change nothing on a page; the pages have one data source."""
_FIRST: Final = tuple(
    f"kernelcast-{name}"
    for name in ("overview", "node", "gpus", "kernels", "synchronisation", "forecasts", "hints", "pipeline")
)
"""Order of the pages that are known; others follow by name."""


@dataclass(frozen=True, slots=True)
class PageModel:
    """One dashboard.

    Attributes:
        uid: Its name in addresses.
        title: Its title.
        description: Its question, in a sentence.
        body: The model as JSON, compressed with gzip.
    """

    uid: str
    title: str
    description: str
    body: bytes


def load() -> tuple[PageModel, ...]:
    """Every generated dashboard, in the order in which the pages list them.

    Raises:
        ConfigurationError: This installation has none.
    """
    folder = package_files(_PACKAGE, _CHECKOUT) / "dashboards"
    models = [_loaded(path) for path in sorted(folder.glob("*.json"))]
    found = [model for model in models if model is not None]
    if not found:
        raise ConfigurationError(f"{folder} has no dashboards; install kernelcast again, or leave --web.pages out")
    return ordered(found)


def ordered(models: Sequence[PageModel]) -> tuple[PageModel, ...]:
    """The pages that are known first, then the others by name."""
    places = {uid: place for place, uid in enumerate(_FIRST)}
    return tuple(sorted(models, key=lambda model: (places.get(model.uid, len(places)), model.uid)))


def page_model(dashboard: Mapping[str, Any]) -> PageModel:
    """A dashboard in the form that is served."""
    text = json.dumps(compact(dashboard), separators=(",", ":"), ensure_ascii=False)
    uid, title = str(dashboard["uid"]), str(dashboard["title"])
    return PageModel(uid, title, str(dashboard.get("description", "")), gzip.compress(text.encode(), mtime=0))


def compact(value: Any) -> Any:
    """The model without keys that only Grafana's editor needs, and without empty values."""
    if isinstance(value, Mapping):
        kept = {key: compact(item) for key, item in value.items() if key not in _EDITOR_KEYS}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [compact(item) for item in value]
    return value


def _loaded(path: Path) -> PageModel | None:
    try:
        return page_model(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        structlog.stdlib.get_logger("bridge").warning("a dashboard cannot be read", path=str(path), error=repr(error))
        return None
