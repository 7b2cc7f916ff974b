"""Links to another page, which carry the time range and the variables, and links to runbooks, as Grafana's JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kernelcast.grafana.addresses import runbook

CARRIED: Final = ("datasource", "job", "hpc_job", "user")
"""Variables that every page has, so that a link hands them on."""
OWN_VALUE: Final = ""
"""Instead of a heading: the cell's own value, not the words that are shown for it."""
RUNBOOK: Final = "runbook:"
"""Scheme of a link to a runbook until the address of the runbooks is known."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link to another page.

    Attributes:
        title: As a person reads it.
        page: The uid of the page.
        variables: Variable of that page to its value: a column's heading in a table, a label in a graph or figure.
        constants: Variable of that page to a fixed value.
    """

    title: str
    page: str
    variables: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)

    def of_row(self) -> dict[str, Any]:
        """Returns the link for a cell of a table."""
        fields = {name: f'__data.fields["{heading}"]' for name, heading in self.variables.items() if heading}
        own = {name: "__value.raw" for name, heading in self.variables.items() if heading == OWN_VALUE}
        return self._data_link({**fields, **own})

    def of_series(self) -> dict[str, Any]:
        """Returns the link for a series of a graph or a figure."""
        return self._data_link({name: f"__field.labels.{label}" for name, label in self.variables.items()})

    def _data_link(self, values: Mapping[str, str]) -> dict[str, Any]:
        own = [f"var-{name}=${{{value}:percentencode}}" for name, value in values.items()]
        fixed = [f"var-{name}={value}" for name, value in self.constants.items()]
        assigned = {*values, *self.constants}
        carried = [f"${{{name}:queryparam}}" for name in CARRIED if name not in assigned]
        url = f"/d/{self.page}?" + "&".join(("${__url_time_range}", *carried, *own, *fixed))
        return {"title": self.title, "url": url, "targetBlank": False}


def to_runbook(alert: str) -> dict[str, Any]:
    """A panel's link to the runbook of an alert; the address is filled in by `with_runbooks`."""
    return {"title": f"Runbook: {alert}", "url": f"{RUNBOOK}{alert}", "targetBlank": True}


def to_runbook_of_value() -> dict[str, Any]:
    """A link of a cell with an alert's name to its runbook; only where each runbook has an address of its own."""
    return {"title": "Runbook", "url": f"{RUNBOOK}${{__value.raw}}", "targetBlank": True}


def _with_runbooks_of_values(config: dict[str, Any], runbooks_url: str) -> dict[str, Any]:
    overrides = []
    for override in config.get("overrides", ()):
        properties = []
        for one in override["properties"]:
            if one["id"] == "links" and one["value"][0]["url"].startswith(RUNBOOK):
                if not runbooks_url.endswith("/"):
                    continue
                (link,) = one["value"]
                there = {**link, "url": link["url"].replace(RUNBOOK, runbooks_url)}
                properties.append({"id": "links", "value": [there]})
            else:
                properties.append(one)
        overrides.append({**override, "properties": properties})
    return {**config, "overrides": overrides} if overrides else config


def with_runbooks(panel: dict[str, Any], runbooks_url: str) -> dict[str, Any]:
    """The panel with the addresses of its runbooks; without these links where no address is known.

    Args:
        panel: A panel or a row with panels, as Grafana's JSON.
        runbooks_url: Where the runbooks are; empty for nowhere.
    """
    links = []
    for link in panel.get("links", ()):
        _, found, alert = link["url"].partition(RUNBOOK)
        if not found:
            links.append(link)
        elif runbooks_url:
            links.append({**link, "url": runbook(runbooks_url, alert)})
    changed = {key: value for key, value in panel.items() if key != "links"} | ({"links": links} if links else {})
    if "fieldConfig" in panel:
        changed["fieldConfig"] = _with_runbooks_of_values(panel["fieldConfig"], runbooks_url)
    if "panels" in panel:
        changed["panels"] = [with_runbooks(inner, runbooks_url) for inner in panel["panels"]]
    return changed
