"""Helpers for the tests of dashboards and rules: parsed queries and their allowed names."""

import json
import os
import re
import subprocess
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import promql_parser
import yaml
from tests.service.require import SELDOM_COLLECTING

from kernelcast.grafana import dashboards, node_exporter, rules
from kernelcast.grafana.rules import hours
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME, Kind, inference, own_name
from kernelcast.wire.catalogue.devices.device import DEVICE_LABELS, OPT_IN_LABELS, USER_LABELS

REPOSITORY: Final = Path(__file__).parents[3]
GENERATED: Final = REPOSITORY / "grafana"
SCRAPED: Final = frozenset({"job", "instance"})
_ENGINE_SERIES: Final = (
    own.replace(one.names[0], name)
    for engine in inference.ENGINES.values()
    for one in engine
    for own in inference.series_of(one).values()
    for name in one.names
)
FOREIGN: Final = {
    **dict.fromkeys(("up", "process_start_time_seconds"), frozenset[str]()),
    hours.OPENCOST_PRICE: frozenset({"node"}),
    **dict.fromkeys(_ENGINE_SERIES, frozenset({"model", inference.MODEL, inference.ENGINE, "le"})),
    **node_exporter.LABELS,
}
"""Labels of series of others that rules and panels read."""
"""Labels that every series has: from OTLP's resource, or from Prometheus."""

_WORDS: Final = re.compile(r"[A-Za-z_:][\w:]*")
_SUFFIXES: Final = ("_bucket", "_sum", "_count")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A query taken apart.

    Attributes:
        selectors: Metric name (or a pattern of names) and the labels its matchers name.
        labels: Labels that aggregations and matching name.
    """

    selectors: tuple[tuple[str, frozenset[str]], ...]
    labels: frozenset[str]


def parse(expr: str) -> Parsed:
    selectors: list[tuple[str, frozenset[str]]] = []
    labels: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            selectors.append(_selector(node.vector_selector))
        elif isinstance(node, promql_parser.VectorSelector):
            selectors.append(_selector(node))
        elif isinstance(node, promql_parser.AggregateExpr) and node.modifier:
            labels.update(node.modifier.labels)
        elif isinstance(node, promql_parser.BinaryExpr) and node.modifier:
            labels.update(node.modifier.matching.labels if node.modifier.matching else ())
            labels.update(node.modifier.group_labels or ())

    promql_parser.walk(promql_parser.parse(without_variables(expr)), visit)
    return Parsed(tuple(selectors), frozenset(labels))


def _selector(node: Any) -> tuple[str, frozenset[str]]:
    matchers = [(matcher.name, matcher.value) for matcher in node.matchers.matchers]
    named = [node.name] if node.name else [value for label, value in matchers if label == "__name__"]
    return named[0], frozenset(label for label, _ in matchers if label != "__name__")


def without_variables(expr: str) -> str:
    """The query with Grafana's variables replaced by possible values."""
    expr = expr.replace("$__rate_interval", "5m").replace("$__range", "1h").replace("$__interval", "1m")
    expr = expr.replace("offset ${horizon}1ms", "offset 1h1ms")
    return re.sub(r"\$\{?(\w+)\}?", r"\1", expr)


def recorded() -> dict[str, frozenset[str]]:
    """Labels of what our recording rules record, by name."""
    known: dict[str, frozenset[str]] = {}
    for text in rules.render(rules.PRODUCTION).values():
        for group in yaml.load(text, yaml.CSafeLoader)["groups"]:
            for rule in group["rules"]:
                if "record" in rule:
                    parsed = parse(rule["expr"])
                    known.setdefault(rule["record"], frozenset())  # a rule may read what it recorded before
                    of = frozenset[str]().union(*(labels_of(name, known) for name, _ in parsed.selectors))
                    known[rule["record"]] = (
                        known.get(rule["record"], frozenset()) | of | frozenset(rule.get("labels", ()))
                    )
    return known


def labels_of(name: str, recordings: dict[str, frozenset[str]]) -> frozenset[str]:
    """The labels that a metric can have; fails for an unknown metric."""
    if name in recordings:
        return recordings[name]
    if name in FOREIGN:
        return SCRAPED | FOREIGN[name]
    if name in ("ALERTS", "ALERTS_FOR_STATE"):
        ours = frozenset(label for row in BY_PROMETHEUS_NAME.values() for label in row.labels)
        return SCRAPED | ours | {"alertname", "alertstate", "severity"}
    name = own_name(name)
    base = next((name.removesuffix(end) for end in _SUFFIXES if name.removesuffix(end) in BY_PROMETHEUS_NAME), name)
    assert base in BY_PROMETHEUS_NAME, f"{name} is not in the catalogue"
    row = BY_PROMETHEUS_NAME[base]
    assert row.exposed, f"{name} travels but is not exposed"
    histogram = row.kind is Kind.HISTOGRAM
    assert (base == name) or histogram, f"{name}: {base} is no histogram"
    of_a_device = set(DEVICE_LABELS) <= set(row.labels)
    team = frozenset({hours.TEAM}) if of_a_device else frozenset[str]()  # a pod's label that a site allows
    used = frozenset((*USER_LABELS, *OPT_IN_LABELS)) if of_a_device else frozenset[str]()
    return SCRAPED | used | team | frozenset(row.labels) | (frozenset({"le"}) if histogram else frozenset())


@cache
def rendered() -> Mapping[str, str]:
    """The text of every dashboard; a dozen files ask for them while tests are collected."""
    return dashboards.render()


@contextmanager
def rendered_again() -> Iterator[None]:
    """Have the dashboards rendered from the model as it is within a block, which changes it, and as it is behind it."""
    rendered.cache_clear()
    try:
        yield
    finally:
        rendered.cache_clear()


def boards() -> dict[str, dict[str, Any]]:
    return {name: json.loads(text) for name, text in rendered().items()}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel that asks something, also those folded away in rows; the text with the questions asks nothing."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        elif panel["type"] != "text":
            yield panel


def run(*command: str | Path) -> str:
    """Run a tool to its end; its output, which a failure shows."""
    environ = {**os.environ, **SELDOM_COLLECTING}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def needed_rules(documents: Mapping[str, Any], queries: str) -> dict[str, Any]:
    """Documents of rules without those that can have no part in the answers to some queries.

    Kept are recordings and alerts whose names the queries have, those that these ask for, and so on. promtool evaluates
    every rule at every step, and most of its tests ask for three of a hundred.

    Args:
        documents: Files of rules, parsed.
        queries: Text that has the queries.
    """
    left = [rule for document in documents.values() for group in document["groups"] for rule in group["rules"]]
    kept: list[Any] = []
    while True:
        words, alerts = set(_WORDS.findall(queries)), _asked_alerts(queries)
        found = [one for one in left if (one["alert"] in alerts if "alert" in one else one["record"] in words)]
        if not found:
            break
        kept += found
        left = [one for one in left if not any(one is each for each in found)]
        queries = " ".join(str(one["expr"]) for one in found)
    return {
        name: {
            "groups": [
                {**group, "rules": [one for one in group["rules"] if any(one is each for each in kept)]}
                for group in document["groups"]
            ]
        }
        for name, document in documents.items()
    }


class _EveryName:
    """All names of alerts."""

    def __contains__(self, name: object) -> bool:
        return True


def _asked_alerts(queries: str) -> Container[str]:
    """Names of the alerts that queries ask for; one that does not say which asks for all."""
    names: set[str] = set()
    for matchers in re.findall(r"\bALERTS(?:_FOR_STATE)?\b(?:{([^}]*)})?", queries):
        found = re.search(r'alertname=~?"([\w|]+)"', matchers)
        if found is None:
            return _EveryName()
        names.update(found[1].split("|"))
    return names


def legend_labels(text: str) -> frozenset[str]:
    """The labels that a legend, in Grafana's `{{label}}`, names."""
    return frozenset(re.findall(r"{{\s*(\w+)\s*}}", text))
