"""The queries of every page as Grafana sends them when the page opens, with the first values of its variables."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.rules.fleet import EVERY_SECONDS, GPUS_OF_A_NODE, MINUTES, host, program_of

from kernelcast.grafana import dashboards

RANGE_SECONDS: Final = MINUTES * 60
"""Time range of graphs: the length of the fleet's past."""
_CHOSEN_NODE: Final = 3
"""Number of the node, and of the program, that stands for a variable with one value."""
_FIXED_VALUES: Final = {
    "metric": "DCGM_FI_DEV_GPU_TEMP",
    "horizon": "1h",
    "__range": f"{RANGE_SECONDS}s",
    "__interval": f"{EVERY_SECONDS}s",
    "__rate_interval": f"{4 * EVERY_SECONDS}s",
}


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """A query as Grafana sends it, and whether it is instant; others have a range."""

    expr: str
    is_instant: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel with its queries.

    Attributes:
        page: Uid of its page.
        title: Its title; in a collapsed row after the row's title.
        queries: Its queries.
    """

    page: str
    title: str
    queries: Sequence[PanelQuery]


def opened(gpus: int, *, every_program: bool = False, kernel: str = ".+") -> Iterator[Panel]:
    """Yield the panels with queries of all pages of a fleet, those in collapsed rows, too.

    Args:
        gpus: GPUs of the fleet.
        every_program: Choose all programs, also on a page that opens on one.
        kernel: Pattern of the kernels chosen.
    """
    for text in dashboards.render().values():
        page = json.loads(text)
        nodes = gpus // GPUS_OF_A_NODE
        values = {
            variable["name"]: _first_value(variable, nodes, every_program=every_program)
            for variable in page["templating"]["list"]
        } | {"kernel": kernel}
        for top in page["panels"]:
            is_row = top["type"] == "row"
            for panel in top["panels"] if is_row else (top,):
                queries = [
                    PanelQuery(_with_values(target["expr"], values), target["instant"])
                    for target in panel.get("targets", ())
                ]
                if queries:
                    title = f"{top['title']} / {panel['title']}" if is_row else panel["title"]
                    yield Panel(page["uid"], title, queries)


def expressions() -> str:
    """Return all expressions of all pages as one text, for the names of metrics in them."""
    return " ".join(query.expr for panel in opened(GPUS_OF_A_NODE) for query in panel.queries)


def _first_value(variable: dict[str, Any], nodes: int, *, every_program: bool) -> str:
    """Return the value of a variable when the page opens, as Grafana writes it into queries."""
    name, is_multiple = variable["name"], variable.get("includeAll")
    if is_multiple and "allValue" in variable:
        return str(variable["allValue"])
    is_all = is_multiple or (every_program and name == "program")
    numbers = range(nodes) if is_all else (_CHOSEN_NODE,)
    values: dict[str, Sequence[str]] = {
        "hostname": [host(node) for node in numbers],
        "gpu": [str(number) for number in range(GPUS_OF_A_NODE)],
        "program": [program_of(node) for node in numbers],
    }
    return f"({'|'.join(values[name])})" if name in values else _FIXED_VALUES.get(name, ".+")


def _with_values(expr: str, values: dict[str, str]) -> str:
    """Return an expression with the values of its variables; the `$1` of `label_replace` is no variable."""
    known = {**_FIXED_VALUES, **values}
    return re.sub(
        r"\$(?:{([A-Za-z_]\w*)(?::\w+)?}|([A-Za-z_]\w*))", lambda match: known.get(match[1] or match[2], ".+"), expr
    )
