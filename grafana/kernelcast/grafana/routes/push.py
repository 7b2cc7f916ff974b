"""Brings a Grafana folder to the dashboards of this version (`kernelcast grafana push`); again, it changes nothing."""

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.grafana.model.dashboard import TAG
from kernelcast.grafana.routes.grafana_api import GrafanaApi

PREFIX: Final = "kernelcast-"
"""First part of the uid of each of our dashboards; no other dashboard is ever deleted."""
_GRAFANAS_OWN: Final = frozenset({"id", "version", "schemaVersion"})
"""Keys whose values Grafana sets."""
_CONTEXT_LINES: Final = 2
"""Equal lines around a difference that are shown."""


@dataclass(frozen=True, slots=True)
class DashboardChange:
    """One change of one dashboard: create, replace, move or delete; `diff` is empty but for replaced ones."""

    action: str
    uid: str
    diff: str = ""


class Push:
    """The changes that bring a folder up to date.

    Args:
        api: Grafana.
        folder: Title of the folder; its uid is made of it.
        dashboards: The JSON text of every dashboard, by file name.
    """

    def __init__(self, api: GrafanaApi, folder: str, dashboards: Mapping[str, str]) -> None:
        self._api = api
        self._title = folder
        self._uid = folder_uid(folder)
        self._dashboards: dict[str, dict[str, Any]] = {}
        for text in dashboards.values():
            dashboard = json.loads(text)
            self._dashboards[dashboard["uid"]] = dashboard

    def changes(self) -> list[DashboardChange]:
        """Compare; nothing is written.

        Raises:
            GrafanaError: Grafana refuses, or does not answer.
        """
        found = [change for uid, dashboard in self._dashboards.items() for change in self._of(uid, dashboard)]
        present = self._api.uids_in(self._uid, TAG) if self._api.folder(self._uid) is not None else []
        removed = [uid for uid in present if uid.startswith(PREFIX) and uid not in self._dashboards]
        return [*found, *(DashboardChange("delete", uid) for uid in removed)]

    def apply(self, changes: list[DashboardChange], *, version: str) -> Iterator[DashboardChange]:
        """Carry changes out, one after the other; yields each that is done.

        Raises:
            GrafanaError: Grafana refuses, or does not answer; earlier changes stay, and the same command does the rest.
        """
        if changes and self._api.folder(self._uid) is None:
            self._api.make_folder(self._uid, self._title)
        for change in changes:
            if change.action == "delete":
                self._api.delete_dashboard(change.uid)
            else:
                self._api.write_dashboard(self._dashboards[change.uid], self._uid, f"kernelcast {version}")
            yield change

    def _of(self, uid: str, wanted: Mapping[str, Any]) -> Iterator[DashboardChange]:
        answer = self._api.dashboard(uid)
        if answer is None:
            yield DashboardChange("create", uid)
            return
        present = answer.get("dashboard", {})
        if not contains(present, _without_grafanas(wanted)):
            yield DashboardChange("replace", uid, _diff(uid, present, wanted))
        elif answer.get("meta", {}).get("folderUid", "") != self._uid:
            yield DashboardChange("move", uid)


def folder_uid(title: str) -> str:
    """The uid of our folder of a title: letters, digits and `-`, at most 40 characters as Grafana demands."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in title.lower())
    return f"{PREFIX}folder-{name.removeprefix(PREFIX)}"[:40].rstrip("-")


def contains(present: Any, wanted: Any) -> bool:
    """Whether JSON has everything that is wanted; Grafana may add keys of its own to objects."""
    if isinstance(wanted, Mapping):
        return isinstance(present, Mapping) and all(
            key in present and contains(present[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(present, list)
            and len(present) == len(wanted)
            and all(contains(one, other) for one, other in zip(present, wanted, strict=True))
        )
    return bool(present == wanted)


def _without_grafanas(dashboard: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in dashboard.items() if key not in _GRAFANAS_OWN}


def _diff(uid: str, present: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    before, after = (
        json.dumps(_without_grafanas(one), indent=1, sort_keys=True, ensure_ascii=False).splitlines()
        for one in (present, wanted)
    )
    names = (f"Grafana/{uid}", f"kernelcast/{uid}")
    return "\n".join(difflib.unified_diff(before, after, *names, n=_CONTEXT_LINES, lineterm=""))
