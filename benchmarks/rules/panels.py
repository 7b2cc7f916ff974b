"""The queries of every page as it opens on a large fleet: with all that the page chooses by itself."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.rules.fleet import EVERY_SECONDS, GPUS_OF_A_NODE, MINUTES, host, program_of

from kernelcast.grafana import dashboards

RANGE_SECONDS: Final = MINUTES * 60
"""Time range of graphs: the length of the fleet's past."""
_WORN: Final = 3
"""Number of the node, and of the program, that a page chooses where it chooses one."""
_OTHERS: Final = {
    "metric": "DCGM_FI_DEV_GPU_TEMP",
    "horizon": "1h",
    "__range": f"{RANGE_SECONDS}s",
    "__interval": f"{EVERY_SECONDS}s",
    "__rate_interval": f"{4 * EVERY_SECONDS}s",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A query as Grafana sends it, and whether it is about one moment."""

    expr: str
    is_instant: bool


def opened(gpus: int) -> Iterator[tuple[str, str, list[Asked]]]:
    """Page, title and queries of each panel of a fleet; panels in collapsed rows have the row's title before theirs."""
    for text in dashboards.render().values():
        page = json.loads(text)
        chosen = {one["name"]: _chosen(one, gpus // GPUS_OF_A_NODE) for one in page["templating"]["list"]}
        for panel in page["panels"]:
            row = f"{panel['title']} / " if panel["type"] == "row" else ""
            for one in panel["panels"] if row else (panel,):
                asked = [Asked(_filled(each["expr"], chosen), each["instant"]) for each in one.get("targets", ())]
                if asked:
                    yield page["uid"], row + one["title"], asked


def queries() -> str:
    """All queries of all pages, for the names in them."""
    return " ".join(each.expr for _, _, asked in opened(GPUS_OF_A_NODE) for each in asked)


def _chosen(variable: dict[str, Any], nodes: int) -> str:
    """The value of a variable when the page opens, as it stands in queries."""
    name, several = variable["name"], variable.get("includeAll")
    if several and "allValue" in variable:
        return str(variable["allValue"])
    values: dict[str, Sequence[str]] = {
        "hostname": [host(node) for node in range(nodes)] if several else [host(_WORN)],
        "gpu": [str(number) for number in range(GPUS_OF_A_NODE)],
        "program": [program_of(node) for node in range(nodes)] if several else [program_of(_WORN)],
    }
    return f"({'|'.join(values[name])})" if name in values else _OTHERS.get(name, ".+")


def _filled(expr: str, chosen: dict[str, str]) -> str:
    """A query with the values of its variables; a `$1` is none."""
    values = {**_OTHERS, **chosen}
    return re.sub(
        r"\$(?:{([A-Za-z_]\w*)(?::\w+)?}|([A-Za-z_]\w*))", lambda found: values.get(found[1] or found[2], ".+"), expr
    )
