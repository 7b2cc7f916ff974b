"""The first figures: the kernel with the most work, not a wait for other GPUs; a limit that has been crossed."""

import re
from typing import Any

import promql_parser
from tests.unit.grafana.queries import boards, panels, parse, without_variables

from kernelcast.grafana.dashboards import events, fleet, forecasts, headlines
from kernelcast.grafana.dashboards.hardware import trouble
from kernelcast.grafana.model.panels import Placed


def test_the_hottest_kernel_is_never_a_collective() -> None:
    (expr,) = {each["expr"] for each in headlines.hottest().panel.targets}
    share, _, whole = expr.partition("/ scalar(")
    assert share.count("kernel:") == share.count('kernel_class!="collective"') == 1
    assert "collective" not in whole.partition('"name",')[0]


def overrides(placed: Placed) -> dict[str, list[dict[str, Any]]]:
    return {one["matcher"]["options"]: one["properties"] for one in placed.panel.field_config["overrides"]}


def test_a_crossed_limit_is_shown_with_the_time_since_then() -> None:
    """A GPU that had been above its limit for an hour was "0 s" under "Soonest breach"."""
    ago = {"id": "unit", "value": "dateTimeFromNow"}
    placed = headlines.breach()
    predicted, crossed = placed.panel.targets[:2]
    assert "crossed_timestamp" in predicted["expr"].rpartition(" unless ")[2]
    assert re.search(overrides(placed).popitem()[0].strip("/"), crossed["legendFormat"])
    assert ago in overrides(placed)["/crossed$/"]
    assert "1000 * min" in crossed["expr"]


def test_a_column_of_breaches_has_the_moment_of_a_crossing_or_the_predicted_one() -> None:
    tables = ((trouble.worst_first(), "Breach"), (forecasts._breaches(forecasts.HARDWARE), "Crosses (50 %)"))
    for placed, heading in tables:
        assert {"id": "unit", "value": "dateTimeFromNow"} in overrides(placed)[heading]
    assert "limit crossed" in str(overrides(trouble.worst_first())["State"])
    exprs = [each["expr"] for each in trouble.worst_first().panel.targets]
    assert [bool(re.search(r"crossed_timestamp.* or 1000 \* \(time\(\) \+ ", one)) for one in exprs][-1]


def test_the_time_since_an_alert_fits_its_column() -> None:
    """ "58.8 mins" was cut behind the "mi"."""
    panel = fleet.alerts().panel
    (since,) = [one["properties"] for one in panel.field_config["overrides"] if one["matcher"]["options"] == "Since"]
    assert {"id": "decimals", "value": 0} in since


def test_an_alert_about_many_kernels_is_one_row_one_mark_and_counts_once() -> None:
    """A hot GPU slowed 16 kernels: 22 alerts fired beside a table of seven, and graphs had a mark for each."""
    (mark,) = (one.expr for one in events.everywhere() if one.name == "Alerts")
    (count,) = (each["expr"].partition(" or 0 *")[0] for each in headlines.alerts().panel.targets)
    rows = fleet.alerts().panel.targets[0]["expr"]
    for expr in (mark, count, rows):
        assert re.search(r"by \(alertname, (severity, )?Hostname, gpu, program\) \(ALERTS", expr), expr
        assert "kernel" not in expr


def test_steps_a_second_are_those_of_a_rank_and_only_items_are_summed_over_ranks() -> None:
    """A program of 4 ranks with steps of 250 ms had 16 steps a second."""
    aggregations: dict[str, set[str]] = {
        "kernelcast_program_steps_total": set(),
        "kernelcast_program_items_total": set(),
    }

    def visit(node: Any) -> None:
        if isinstance(node, promql_parser.AggregateExpr) and isinstance(node.expr, promql_parser.Call):
            by_rank = node.modifier is not None and "rank" in node.modifier.labels
            for metric, _ in parse(node.expr.prettify()).selectors:
                aggregations.get(metric, set()).add("by rank" if by_rank else str(node.op))

    for board in boards().values():
        for panel in panels(board):
            for target in panel.get("targets", ()):
                if "kernelcast_program_" in target.get("expr", ""):
                    promql_parser.walk(promql_parser.parse(without_variables(target["expr"])), visit)
    assert aggregations == {
        "kernelcast_program_steps_total": {"avg", "by rank"},
        "kernelcast_program_items_total": {"sum"},
    }
