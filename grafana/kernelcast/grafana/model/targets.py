"""Queries of a panel, in the shape that Grafana's Prometheus query editor saves."""

from dataclasses import dataclass
from typing import Any, Final

DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
"""Always a variable: `__inputs` resolve in the import dialog only, so a provisioned dashboard would stay empty."""


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL query.

    Attributes:
        expr: PromQL.
        legend: Grafana's legend format; empty leaves the series' own name.
        instant: One value at the end of the time range, as a table needs it, rather than a series.
        format: `time_series`, `table` or `heatmap`.
    """

    expr: str
    legend: str = ""
    instant: bool = False
    format: str = "time_series"

    def to_target(self, position: int) -> dict[str, Any]:
        """The query as Grafana's target object.

        Args:
            position: From 0; becomes the reference A, B, C and so on.
        """
        return {
            "datasource": dict(DATASOURCE),
            "editorMode": "code",
            "expr": self.expr,
            "format": self.format,
            "instant": self.instant,
            "legendFormat": self.legend or "__auto",
            "range": not self.instant,
            "refId": chr(ord("A") + position),
        }


def column(expr: str) -> Query:
    """A query whose present values fill one column of a table."""
    return Query(expr, instant=True, format="table")
