"""Every query of every dashboard asks for metrics and labels that kernelcast emits."""

import re
from collections.abc import Iterator

import pytest
from tests.unit.grafana.queries import boards, labels_of, legend_labels, panels, parse, recorded, without_variables

from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME

ANY_SUBJECT = "metric"
RECORDED = recorded()
MADE = {"Value"}
"""Grafana's name for the values of a table with one query."""


def queries() -> Iterator[tuple[str, str, str]]:
    """The place of a query, the query, its legend."""
    for name, board in boards().items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield f"{name}: {panel['title']} {target['refId']}", target["expr"], target["legendFormat"]
        for annotation in board["annotations"]["list"]:
            if "expr" in annotation:
                legend = annotation["titleFormat"] + annotation["textFormat"]
                yield f"{name}: annotation {annotation['name']}", annotation["expr"], legend


def variables() -> Iterator[tuple[str, str, str]]:
    """The place of a variable, its selector, its label."""
    for name, board in boards().items():
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                query = variable["query"]["query"]
                if ranked := re.fullmatch(r"query_result\((.*)\)", query):
                    label = re.match(r"/\[{, \](\w+)=", variable["regex"])
                    assert label, variable
                    yield f"{name}: ${variable['name']}", ranked[1], label[1]
                    continue
                asked = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
                assert asked, variable
                yield f"{name}: ${variable['name']}", asked[1], asked[2]


def known_labels(metric: str) -> frozenset[str]:
    """Labels of a metric, of a choice of metrics, or of whichever one the variable names."""
    if metric in (ANY_SUBJECT, f"{ANY_SUBJECT}_sum", f"{ANY_SUBJECT}_count"):
        return frozenset({"job", "instance"}).union(*(row.labels for row in BY_PROMETHEUS_NAME.values()))
    return frozenset().union(*(labels_of(name, RECORDED) for name in metric.split("|")))


@pytest.mark.slow
@pytest.mark.parametrize(("where", "expr", "legend"), tuple(queries()), ids=lambda value: value[:60])
def test_a_query_names_only_metrics_and_labels_that_are_emitted(where: str, expr: str, legend: str) -> None:
    parsed = parse(expr)
    assert parsed.selectors, where
    available: frozenset[str] = frozenset()
    for metric, matched in parsed.selectors:
        labels = known_labels(metric)
        assert matched <= labels, f"{where}: {metric} has no {matched - labels}"
        available |= labels
    joined = frozenset(re.findall(r'label_join\(.*?, "(\w+)", ', expr))
    assert parsed.labels <= available | joined, f"{where}: {parsed.labels - available} of none of the metrics"
    made = frozenset(re.findall(r'label_replace\(.*?, "(\w+)", "[^"]*\$1"', expr))
    if legend != "__auto":
        assert legend_labels(legend) <= available | made, f"{where}: the legend names labels that cannot be there"


@pytest.mark.parametrize(("where", "selector", "label"), tuple(variables()))
def test_a_variable_lists_a_label_that_its_metrics_have(where: str, selector: str, label: str) -> None:
    for metric, matched in parse(selector).selectors:
        labels = known_labels(metric)
        assert label in labels, where
        # A matcher that an empty value satisfies narrows to one of the metrics: launches have no user.
        assert matched <= labels | {"user", "hpc_job"}, where
        assert matched - labels <= {"user", "hpc_job"} or "|" not in metric, where


def test_every_table_column_comes_from_a_query() -> None:
    for board in boards().values():
        for panel in panels(board):
            if panel["type"] == "table":
                organize = panel["transformations"][1]["options"]
                values = {f"Value #{target['refId']}" for target in panel["targets"]}
                labels = frozenset[str]().union(*(parse(target["expr"]).labels for target in panel["targets"]))
                only = MADE if len(panel["targets"]) == 1 else set()
                assert set(organize["renameByName"]) <= values | labels | only | {"calm"}, panel["title"]
                headings = set(organize["renameByName"].values())
                assert {item["matcher"]["options"] for item in panel["fieldConfig"]["overrides"]} <= headings
                assert panel["options"]["sortBy"][0]["displayName"] in headings


def test_every_variable_used_is_defined() -> None:
    for name, board in boards().items():
        defined = {variable["name"] for variable in board["templating"]["list"]}
        for _, expr, _ in (query for query in queries() if query[0].startswith(f"{name}: ")):
            used = set(re.findall(r"\$\{?([a-z_]\w*)\}?", expr))
            assert used - {"__rate_interval", "__range", "__interval"} <= defined, expr
        assert without_variables("${metric}_sum[$__rate_interval]") == "metric_sum[5m]"
