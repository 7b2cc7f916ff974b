"""A dashboard's variables, in the shape that Grafana saves."""

from dataclasses import dataclass
from typing import Any, Final

from kernelcast.grafana.model.targets import DATASOURCE

REFRESH_ON_TIME_RANGE: Final = 2
"""Grafana's number for a variable's `refresh`: its values are asked for again when the time range changes."""
SORT_NATURAL: Final = 7
"""Grafana's number for a variable's `sort`: natural order, in which 2 is before 10."""
_AS_ANSWERED: Final = 0
"""Grafana's number for a variable's `sort`: the order of the answer."""
_LABEL_VALUES: Final = 1
"""Grafana's number for a `qryType` of Prometheus: the values of a label."""
_QUERY_RESULT: Final = 3
"""Grafana's number for a `qryType` of Prometheus: the result of a query."""
_HIDDEN: Final = 2
"""Grafana's number for a variable's `hide`: neither label nor list is shown."""


@dataclass(frozen=True, slots=True)
class LabelVariable:
    """The values of a label, to choose from.

    Attributes:
        name: As queries name it.
        title: As people see it.
        selector: The series whose label is meant.
        label: The label.
        several: Whether more than one, or all, may be chosen.
        all_value: Pattern in queries where all are chosen; None for the values listed, which is what makes
            a choice of an earlier variable narrow the queries.
        hidden: Whether the page shows no field for it.
    """

    name: str
    title: str
    selector: str
    label: str
    several: bool = True
    all_value: str | None = ".+"
    hidden: bool = False

    def to_json_data(self) -> dict[str, Any]:
        """Returns the variable for grafanalib's JSON encoder."""
        queried = _queried(self.name, self.title, f"label_values({self.selector}, {self.label})", _LABEL_VALUES)
        return {
            **queried,
            "sort": SORT_NATURAL,
            "regex": "",
            "hide": _HIDDEN if self.hidden else 0,
            **self._choice(),
        }

    def _choice(self) -> dict[str, Any]:
        if not self.several:
            return {"multi": False, "includeAll": False, "current": {}}
        everything = {"text": ["All"], "value": ["$__all"]}
        pattern = {} if self.all_value is None else {"allValue": self.all_value}
        return {"multi": True, "includeAll": True, **pattern, "current": everything}


@dataclass(frozen=True, slots=True)
class RankedVariable:
    """One value of a label, the largest of a query first: the default choice is the most important one.

    Attributes:
        name: As queries name it.
        title: As people see it.
        expr: PromQL; each result has the label.
        label: The label.
        words: Label with the text that people read instead of the value; empty for the value itself.
        several: Whether more than one may be chosen; the first one is when the page opens.
    """

    name: str
    title: str
    expr: str
    label: str
    words: str = ""
    several: bool = False

    def to_json_data(self) -> dict[str, Any]:
        """Returns the variable for grafanalib's JSON encoder."""
        # Grafana recognises no query_result of several lines.
        query = f"query_result(sort_desc({self.expr}))".replace("\n", " ")
        value = f'/[{{, ]{self.label}="(?<value>[^"]*)"'
        text = f'.*[{{, ]{self.words}="(?<text>[^"]+)"/' if self.words else "/"
        return {
            **_queried(self.name, self.title, query, _QUERY_RESULT),
            "sort": _AS_ANSWERED,
            "regex": value + text,
            "hide": 0,
            "multi": self.several,
            "includeAll": False,
            "current": {},
        }


def _queried(name: str, title: str, query: str, kind: int) -> dict[str, Any]:
    """A variable whose values Grafana queries from Prometheus; `kind` is its `qryType`."""
    return {
        "name": name,
        "label": title,
        "type": "query",
        "datasource": dict(DATASOURCE),
        "definition": query,
        "query": {"qryType": kind, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": REFRESH_ON_TIME_RANGE,
        "skipUrlSync": False,
        "options": [],
    }


@dataclass(frozen=True, slots=True)
class DatasourceVariable:
    """The variable that selects the Prometheus; every panel, query, variable and annotation uses it."""

    def to_json_data(self) -> dict[str, Any]:
        """Returns the variable for grafanalib's JSON encoder."""
        return {
            "name": "datasource",
            "label": "Data source",
            "type": "datasource",
            "query": DATASOURCE["type"],
            "refresh": 1,
            "regex": "",
            "hide": 0,
            "includeAll": False,
            "multi": False,
            "skipUrlSync": False,
            "current": {},
            "options": [],
        }
