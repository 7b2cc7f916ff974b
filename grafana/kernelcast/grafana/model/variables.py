"""A dashboard's variables, in the shape that Grafana saves."""

from dataclasses import dataclass
from typing import Any, Final

from kernelcast.grafana.model.targets import DATASOURCE

REFRESH_ON_TIME_RANGE: Final = 2
SORT_NATURAL: Final = 7
_LABEL_VALUES: Final = 1


@dataclass(frozen=True, slots=True)
class LabelVariable:
    """The values of a label, to choose from.

    Attributes:
        name: As queries name it.
        title: As people see it.
        selector: The series whose label is meant.
        label: The label.
        several: Whether more than one, or all, may be chosen.
    """

    name: str
    title: str
    selector: str
    label: str
    several: bool = True

    def to_json_data(self) -> dict[str, Any]:
        """Returns the variable for grafanalib's JSON encoder."""
        query = f"label_values({self.selector}, {self.label})"
        return {
            "name": self.name,
            "label": self.title,
            "type": "query",
            "datasource": dict(DATASOURCE),
            "definition": query,
            "query": {"qryType": _LABEL_VALUES, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
            "refresh": REFRESH_ON_TIME_RANGE,
            "sort": SORT_NATURAL,
            "regex": "",
            "hide": 0,
            "skipUrlSync": False,
            "options": [],
            **self._choice(),
        }

    def _choice(self) -> dict[str, Any]:
        if not self.several:
            return {"multi": False, "includeAll": False, "current": {}}
        everything = {"text": ["All"], "value": ["$__all"]}
        return {"multi": True, "includeAll": True, "allValue": ".+", "current": everything}


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
