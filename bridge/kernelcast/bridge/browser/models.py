"""Loads the generated Grafana dashboards at the bridge's start, for the pages that it serves itself.

A page is one dashboard. Its model is the dashboard's JSON, which the page's script draws in the browser.
"""

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
"""`kernelcast/grafana` of an installed wheel: files are read from it, and nothing is imported."""
_CHECKOUT: Final = _HERE.parents[4] / "grafana"
"""`grafana` of a checkout, used where the wheel's folder has no dashboards."""
_UNUSED_KEYS: Final = frozenset(
    {"datasource", "definition", "editorMode", "pluginVersion", "schemaVersion", "timepicker"}
)
"""Keys that change nothing on a page, at any depth: those of Grafana's editor, and the one data source."""
_PAGE_ORDER: Final = tuple(f"kernelcast-{name}" for name in ("overview", "kernels", "gpus", "serving", "pipeline"))
"""Order of the generated pages; others follow, sorted by uid."""


@dataclass(frozen=True, slots=True)
class PageModel:
    """The model of one page, ready to be sent.

    Attributes:
        uid: Its identifier in URLs, as in Grafana.
        title: Its title.
        description: The question that it answers, in a sentence.
        body: The dashboard's JSON, compressed with gzip.
    """

    uid: str
    title: str
    description: str
    body: bytes


def load() -> tuple[PageModel, ...]:
    """Every generated dashboard, in the order in which the pages list them.

    One that cannot be read is logged and left out.

    Raises:
        ConfigurationError: None can be read.
    """
    folder = package_files(_PACKAGE, _CHECKOUT) / "dashboards"
    models = [_load_or_none(path) for path in sorted(folder.glob("*.json"))]
    found = [model for model in models if model is not None]
    if not found:
        raise ConfigurationError(
            f"{folder} has no dashboards that can be read; install kernelcast again, or start it with --no-web.pages"
        )
    return ordered(found)


def ordered(models: Sequence[PageModel]) -> tuple[PageModel, ...]:
    """The generated pages in their order, then others, sorted by uid."""
    places = {uid: place for place, uid in enumerate(_PAGE_ORDER)}
    return tuple(sorted(models, key=lambda model: (places.get(model.uid, len(places)), model.uid)))


def page_model(dashboard: Mapping[str, Any]) -> PageModel:
    """The page of a dashboard. Equal dashboards give equal bytes."""
    text = json.dumps(compact(dashboard), separators=(",", ":"), ensure_ascii=False)
    uid, title = str(dashboard["uid"]), str(dashboard["title"])
    return PageModel(uid, title, str(dashboard.get("description", "")), gzip.compress(text.encode(), mtime=0))


def compact(value: Any) -> Any:
    """The dashboard without unused keys, and without keys whose value is an empty object or list."""
    if isinstance(value, Mapping):
        kept = {key: compact(item) for key, item in value.items() if key not in _UNUSED_KEYS}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    if isinstance(value, list):
        return [compact(item) for item in value]
    return value


def _load_or_none(path: Path) -> PageModel | None:
    try:
        return page_model(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        log = structlog.stdlib.get_logger("bridge")
        log.warning("a dashboard cannot be read", path=str(path), error=repr(error))
        return None
