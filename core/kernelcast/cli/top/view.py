"""The state behind the screen of `top` and the demo: pages, user's choices, alerts; nothing here needs a terminal.

`command` and the demo fill a `TopView`; `screen` draws it, and `--json` prints its `document`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from kernelcast.cli.top.page import ScrapedPage
from kernelcast.cli.top.rates import History, KernelNow

SORTS: Final = ("time", "change", "launches", "mean", "name")
"""Orders of the kernels: share of GPU time now, slower than before, launches a second, mean duration, name."""
OLD_SECONDS: Final = 60.0
"""Age from which on figures are marked as old: several intervals of an exporter."""
_UNKNOWN: Final = {"probability": None, "seconds_left": None, "crossed_seconds_ago": None}
_SEQUENCE: Final = re.compile(r"\x1b(?:O.|\[M...|\[[0-9;<]*[A-Za-z~])", re.DOTALL)
"""Bytes of a function key, an arrow, or the mouse."""
_ANSWERS: Final = ("kept", "rolled_back", "rejected", "applied", "received")
"""States of a hint, the last one first: the first that the page has is the state of a hint."""


ALERT_SUBJECT: Final = ("Hostname", "gpu", "program")
"""Labels by which alerts of one name are counted, as on the dashboards: a fault of a GPU slows many kernels at once."""


def counted(alerts: Sequence[Mapping[str, str]]) -> int:
    """Number of subjects of alerts of one name."""
    return len({tuple(labels.get(name, "") for name in ALERT_SUBJECT) for labels in alerts})


@dataclass(slots=True)
class Controls:
    """Choices of the user: order, filter, pause.

    Attributes:
        sort: One of `SORTS`.
        text: Only kernels, programs and GPUs whose name has this text.
        paused: Whether the screen stays as it is.
        typing: Whether keys are added to `text`.
    """

    sort: str = SORTS[0]
    text: str = ""
    paused: bool = False
    typing: bool = False

    def press(self, keys: str) -> bool:
        """Apply keys; returns whether to quit. Function keys, arrows and the mouse have no effect."""
        for key in _SEQUENCE.sub("", keys):
            if self.typing:
                self._type(key)
            elif key in "qQ":
                return True
            elif key in "pP ":
                self.paused = not self.paused
            elif key in "sS":
                self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
            elif key in "fF/":
                self.typing, self.text = True, ""
            elif key == "\x1b":
                self.text = ""
        return False

    def _type(self, key: str) -> None:
        if key in "\r\n":
            self.typing = False
        elif key == "\x1b":
            self.typing, self.text = False, ""
        elif key in "\x7f\b":
            self.text = self.text[:-1]
        elif key.isprintable():
            self.text = (self.text + key)[:60]


@dataclass(frozen=True, slots=True)
class Alerts:
    """Alerts that fire now.

    Attributes:
        firing: Their labels; None where nothing is known.
        reason: The reason for which nothing is known.
    """

    firing: Sequence[Mapping[str, str]] | None = None
    reason: str = "no Prometheus was asked: give --prometheus URL"


@dataclass(slots=True)
class TopView:
    """State of the screen at one moment. For the thread that shows it.

    Attributes:
        title: Address of the page, or the demo's banner.
        history: The newest pages.
        now_seconds: The present, Unix seconds.
        alerts: Alerts that fire.
        error: The reason why the newest page could not be read; empty if it was.
        controls: The user's choices.
        source_style: Style of the title.
    """

    title: str
    history: History = field(default_factory=History)
    now_seconds: float = 0.0
    alerts: Alerts = field(default_factory=Alerts)
    error: str = ""
    controls: Controls = field(default_factory=Controls)
    source_style: str = "bold white on blue"

    @property
    def page(self) -> ScrapedPage:
        """The newest page; an empty one before the first."""
        return self.history.page or ScrapedPage()

    @property
    def age_seconds(self) -> float | None:
        """Age of the newest figures; None while it is unknown."""
        return self.history.age_seconds(self.now_seconds)

    @property
    def is_old(self) -> bool:
        """Whether the figures are too old to be of now."""
        age = self.age_seconds
        return bool(self.error) or (age is not None and age > OLD_SECONDS)

    def kernels(self) -> list[KernelNow]:
        """The kernels that the user asked for, in the order that the user chose."""
        text = self.controls.text.lower()
        found = [
            one
            for one in self.history.kernels()
            if text in one.name.lower() or any(text in name.lower() for name in one.programs)
        ]
        orders: dict[str, Any] = {
            "time": lambda one: (-(one.busy_ratio or 0.0), -(one.launches * (one.before_seconds or 0.0))),
            "change": lambda one: -(one.change_ratio or 0.0),
            "launches": lambda one: -(one.launches_per_second or 0.0),
            "mean": lambda one: -(one.mean_seconds or one.before_seconds or 0.0),
            "name": lambda one: one.name,
        }
        return sorted(found, key=orders[self.controls.sort])

    def gpus(self) -> list[tuple[str, str, Mapping[str, float]]]:
        """Node, index and values of each GPU that the user asked for, by node and number."""
        text = self.controls.text.lower()
        every = sorted(self.page.gpus.items(), key=lambda item: (item[0][0], len(item[0][1]), item[0][1]))
        chosen = [item for item in every if text in f"{item[0][0]} {item[0][1]}".lower()]
        return [(host, index, values) for (host, index), values in chosen or every]

    def predictions(self) -> list[dict[str, Any]]:
        """Crossed limits, then predicted ones, the soonest first; of several horizons the highest probability."""
        best: dict[tuple[str, ...], dict[str, Any]] = {}
        for labels, probability in self.page.degradations:
            key = _subject(labels)
            known = best.get(key)
            if known is None or probability > known["probability"]:
                best[key] = _UNKNOWN | {"labels": labels, "probability": probability}
        for labels, seconds in self.page.seconds_left:
            if _subject(labels) in best:
                best[_subject(labels)]["seconds_left"] = seconds
        for labels, crossed in self.page.crossed:
            one = best.setdefault(_subject(labels), _UNKNOWN | {"labels": labels})
            one["crossed_seconds_ago"] = max(self.now_seconds - crossed, 0.0)
        return sorted(best.values(), key=_urgency)

    @property
    def knows_predictions(self) -> bool:
        """Whether an empty list would mean that nothing is predicted."""
        page = self.page
        return bool(page.degradations or page.crossed) or (page.predictor_is_up and page.judged > 0 and not self.is_old)

    def no_prediction(self) -> str:
        """The meaning of an empty list: only a predictor that reports now can say that nothing is coming."""
        page = self.page
        if self.history.page is None:
            return "not known yet: no page was read"
        if not page.is_bridge:
            return "not known here: predictions are on a bridge's page (port 19401)"
        if self.is_old:
            return "not known: the figures are old"
        if not page.predictor_is_up:
            return "not known: no predictor reports to this bridge"
        if not page.judged:
            return "not known yet: the predictor reports, and no series has enough history so far"
        return f"nothing predicted for {page.judged} series with a limit"

    def alert_groups(self) -> list[tuple[str, str, list[Mapping[str, str]]]]:
        """Severity, name and labels of the alerts that fire, by name, the most severe first."""
        groups: dict[tuple[str, str], list[Mapping[str, str]]] = {}
        for labels in self.alerts.firing or ():
            groups.setdefault((labels.get("severity", ""), labels.get("alertname", "?")), []).append(labels)
        order = {"critical": 0, "warning": 1}
        names = sorted(groups, key=lambda key: (order.get(key[0], 2), key[1]))
        return [(severity, name, groups[severity, name]) for severity, name in names]

    def alert_count(self) -> int:
        """Return the number of alerts that fire, counted as on the dashboards."""
        return sum(counted(every) for _, _, every in self.alert_groups())

    def hints(self) -> list[dict[str, Any]]:
        """Open hints with the expected kernel time, then the others with their last state and measured kernel time."""
        page = self.page
        waiting = {(labels.get("program", ""), labels.get("tunable", "")): labels for labels in page.open_hints}
        found = []
        for program, tunable in sorted({*waiting, *page.hints, *(key[:2] for key in page.outcomes)}):
            labels = waiting.get((program, tunable), {})
            found.append(
                {
                    "program": program,
                    "tunable": tunable,
                    "issued": page.hints.get((program, tunable), 0.0),
                    "state": labels.get("state") or self._answer(program, tunable),
                    "previous": labels.get("previous", ""),
                    "proposed": labels.get("value", ""),
                    "expected_ratio": page.expected_ratios.get(labels.get("hint_id", "")),
                    "measured_ratio": None if labels else page.ratios.get((program, tunable)),
                }
            )
        return sorted(found, key=lambda one: not one["proposed"])

    def _answer(self, program: str, tunable: str) -> str:
        """The last state that programs are known to have reached with a hint for a tunable."""
        of = self.page.outcomes
        states = (state for state in _ANSWERS if of.get((program, tunable, state)))
        return next(states, "open")

    def document(self) -> dict[str, Any]:
        """The same as JSON, with null in place of NaN and Inf."""
        document: dict[str, Any] = _without_nan(self._document())
        return document

    def _document(self) -> dict[str, Any]:
        age = self.age_seconds
        return {
            "title": self.title,
            "time": self.now_seconds,
            "age_seconds": None if age is None else round(age, 3),
            "rate_over_seconds": round(self.history.span_seconds, 3),
            "sources": sorted(source or "live" for source in self.page.sources),
            "gpus": [{"node": host, "gpu": index, **values} for host, index, values in self.gpus()],
            "kernels": [{**asdict(one), "change_ratio": one.change_ratio} for one in self.kernels()],
            "programs": [
                {"program": name, "launches_per_second": rate} for name, rate in self.history.programs().items()
            ],
            "predictions": self.predictions(),
            "no_prediction": "" if self.page.degradations or self.page.crossed else self.no_prediction(),
            "hints": self.hints(),
            "alerts": None if self.alerts.firing is None else [dict(labels) for labels in self.alerts.firing],
            "alerts_unknown": self.alerts.reason if self.alerts.firing is None else "",
            "producers": [
                {"job": job, "instance": instance, "up": up} for (job, instance), up in self.page.producers.items()
            ],
        }


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _urgency(prediction: Mapping[str, Any]) -> tuple[bool, bool, float, bool]:
    left = prediction["seconds_left"]
    return prediction["crossed_seconds_ago"] is None, left is None, left or 0.0, "kernel" in prediction["labels"]


def _subject(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("Hostname", "gpu", "program", "kernel", "metric", "cause"))
