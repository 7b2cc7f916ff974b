"""Recording and alerting rules as values, and the profiles (production, demo) that scale their times."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urljoin

import yaml

from kernelcast.grafana.addresses import KERNELS, runbook
from kernelcast.grafana.inputs import Jobs, Thresholds
from kernelcast.wire.errors import ConfigurationError

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
_UNITS: Final = ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"))


SHORT_NAME: Final = 'reReplaceAll "([^ ])[<(#].*" "$1"'
"""In a template, a kernel's name up to its template arguments, parameters or hash."""
RUNBOOKS_URL: Final = ""
"""Where people read the runbooks is for each site to say, such as the bridge's /runbooks/."""


KEPT_SECONDS: Final = 15 * MINUTE
"""Time for which an alert about hardware is kept: longer than it takes until an alert about a dead node or bridge
fires, which mutes a false "resolved"."""
RELEASE_FIRST: Final = (
    "Before a reset: `kernelcast exporter release INDEX` on that node, because the exporter has the GPU open. Stop "
    "other monitors of the GPU too."
)
"""Step of every alert that advises to reset a GPU."""


SLOW_SECONDS: Final = 5 * MINUTE
"""Between two evaluations of recordings that look back over hours."""


class AlertSeverity(StrEnum):
    """Urgency: act now, act today, or for information."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Profile:
    """Scale of the rules' windows and waiting times; the meaning of an expression stays the same.

    Attributes:
        name: How a person asks for it.
        evaluation_seconds: Between two evaluations of a group.
        shrink: Divisor of every window, and of a `for` of an hour; see `shortest_hold_seconds`.
        shortest_window_seconds: Below this a window would hold too few scrapes to rate.
        baseline_age_seconds: How far back a kernel's own baseline lies.
        baseline_window_seconds: How long it is.
        runbooks_url: Where the runbooks are, see `addresses.runbook`; empty: alerts have no link.
        dashboard_url: The dashboard of kernels; the others are its neighbours. Empty: alerts have no link to one.
        jobs: Jobs of the services that run.
        thresholds: Values from which alerts fire.
        prices: Price of a GPU-hour by model, as NVML names it.
        shortest_hold_seconds: Waiting times below an hour lie between this and the hour's, in proportion: a cause is
            announced before its consequences because these wait for longer.
    """

    name: str
    evaluation_seconds: int
    shrink: int
    shortest_window_seconds: int
    baseline_age_seconds: int
    baseline_window_seconds: int
    runbooks_url: str = RUNBOOKS_URL
    dashboard_url: str = ""
    jobs: Jobs = field(default_factory=Jobs)
    thresholds: Thresholds = field(default_factory=Thresholds)
    prices: Mapping[str, float] = field(default_factory=dict, hash=False)
    shortest_hold_seconds: int = 0

    def page(self, uid: str) -> str:
        """The address of a dashboard, beside that of kernels, which may have a title and variables at its end."""
        before, found, _ = self.dashboard_url.rpartition("/d/")
        return f"{before}{found}{uid}" if found else urljoin(self.dashboard_url, uid)

    def window(self, seconds: int) -> str:
        """A range for `rate` and its like, which production takes over `seconds`."""
        return duration(max(seconds // self.shrink, min(seconds, self.shortest_window_seconds)))

    def hold(self, seconds: int) -> str:
        """How long a condition must hold; `seconds` in production. Of two times, the longer one stays the longer."""
        least = min(seconds, self.shortest_hold_seconds)
        return duration(least + seconds * (HOUR // self.shrink - least) // HOUR)


PRODUCTION: Final = Profile("production", 30, 1, 2 * MINUTE, DAY, HOUR)
DEMO: Final = Profile("demo", 1, 60, 15, 24 * MINUTE, MINUTE, shortest_hold_seconds=10)
"""For demonstrations and tests: scraped each second, minutes become seconds.

A Prometheus that has just started has no target for 5 s, and a busy laptop misses some scrapes of a second."""

PROFILES: Final = {profile.name: profile for profile in (PRODUCTION, DEMO)}


def profile_named(name: str) -> Profile:
    """The profile a person asked for.

    Raises:
        ConfigurationError: There is none of that name.
    """
    if name not in PROFILES:
        raise ConfigurationError(f"profile is {name!r}; it must be one of {', '.join(PROFILES)}; choose one of them")
    return PROFILES[name]


def duration(seconds: int) -> str:
    """A number of seconds as Prometheus writes it, in the largest unit that divides it."""
    for length, unit in _UNITS:
        if seconds and seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def lately(record: str, profile: Profile) -> str:
    """The last values of a recording of a slow group: Prometheus may see none as present."""
    return f"last_over_time({record}[{profile.window(2 * SLOW_SECONDS)}])"


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """A recording rule, named level:metric:operation."""

    record: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def to_rule(self, profile: Profile) -> dict[str, Any]:  # noqa: ARG002  the same call as on an alert
        """As Prometheus reads it."""
        return {"record": self.record, "expr": self.expr} | ({"labels": dict(self.labels)} if self.labels else {})


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alerting rule with the text for its recipient.

    Attributes:
        name: CamelCase.
        expr: PromQL.
        hold_seconds: How long it must hold in production.
        severity: Who should care.
        summary: One line; may use `{{ $labels.x }}` and `{{ $value }}`.
        description: What was seen and how it was judged.
        action: What to do first.
        first: The same for the runbook, where `action` depends on the labels of the alert.
        who: Who acts, for the runbook; empty: those of its group, see `render`.
        subject: Labels that the dashboard's variables take from the alert, by the variable's name.
        dashboard: The uid of the dashboard that it leads to.
        steps: What to do next, for the runbook.
        source: Where a judgement comes from that is not ours, for the runbook.
        keep_seconds: How long it continues to fire in production after its condition ended; Prometheus 2.42 or later.
    """

    name: str
    expr: str
    hold_seconds: int
    severity: AlertSeverity
    summary: str
    description: str
    action: str
    subject: tuple[str, ...] = ()
    dashboard: str = KERNELS
    steps: tuple[str, ...] = ()
    source: str = ""
    keep_seconds: int = 0
    first: str = ""
    who: str = ""

    def to_rule(self, profile: Profile) -> dict[str, Any]:
        """As Prometheus reads it. Without a link to the runbook, its first step is part of the description."""
        rule: dict[str, Any] = {"alert": self.name, "expr": self.expr}
        if self.hold_seconds:
            rule["for"] = profile.hold(self.hold_seconds)
        if self.keep_seconds:
            rule["keep_firing_for"] = profile.hold(self.keep_seconds)
        rule["labels"] = {"severity": str(self.severity)}
        link = {"runbook_url": runbook(profile.runbooks_url, self.name)} if profile.runbooks_url else {}
        first = "" if link else f" First: {self.action}"
        rule["annotations"] = {
            "summary": self.summary,
            "description": self.description + first,
            "action": self.action,
            **link,
        }
        if profile.dashboard_url:
            rule["annotations"]["dashboard_url"] = profile.page(self.dashboard) + self._variables()
        return rule

    def _variables(self) -> str:
        """The page's choices: those labels of the alert that it has."""
        chosen = (
            f"{{{{ with $labels.{label} }}}}{sign}var-{label.lower()}={{{{ . | urlquery }}}}{{{{ end }}}}"
            for sign, label in zip(itertools.chain([""], itertools.repeat("&")), self.subject, strict=False)
        )
        return "?" + "".join(chosen) if self.subject else ""


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Rules that Prometheus evaluates one after the other.

    Attributes:
        name: Unique in its file.
        rules: In their order.
        interval_seconds: Between two evaluations in production, where that is longer than the profile's.
    """

    name: str
    rules: tuple[RecordingRule | AlertRule, ...]
    interval_seconds: int = 0

    def to_group(self, profile: Profile) -> dict[str, Any]:
        """As Prometheus reads it."""
        rules = [rule.to_rule(profile) for rule in self.rules]
        interval = max(profile.evaluation_seconds, self.interval_seconds // profile.shrink)
        return {"name": self.name, "interval": duration(interval), "rules": rules}


class _Dumper(yaml.SafeDumper):
    """Long texts in one line each: a rule is easier to compare that way."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  pyyaml's signature
        return True


def to_yaml(document: Mapping[str, Any], *, heading: str) -> str:
    """A document as YAML, keys in the order given, under a comment that names its source."""
    body = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
    comment = "".join(f"# {line}\n" for line in heading.splitlines())
    return f"{comment}{body}"
