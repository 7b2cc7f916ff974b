"""PromQL for alerts about absence: groups whose series are no longer written, and instances that do not work."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kernelcast.grafana.rules.model import DAY, HOUR, AlertRule, AlertSeverity, Profile, duration

_REMEMBERED: Final = duration(5 * DAY)
"""Longest time for which an alert about absent series fires; not a week, so that weekly maintenance is no pattern."""


def of_all(rule: AlertRule, *, name: str, works: str, service: str) -> AlertRule:
    """An alert that fires while each instance of a service fails, by the rule about one of them, and none works.

    It is for Alertmanager alone, which mutes by it: while one of several bridges works, the series that it brings are
    still true. It has no labels of an instance, so it is one alert from the beginning of the outage to its end.
    """
    return replace(
        rule,
        name=name,
        expr=f"group({rule.expr}) unless on () {works}",
        severity=AlertSeverity.NONE,
        summary=f"No {service} works",
        description=f"Alertmanager mutes by this alert what follows; {rule.name} mutes this one.",
        action=f"Do what {rule.name} says.",
        steps=(),
    )


def unread_targets(alert: str, job: str | None, profile: Profile) -> str:
    """Targets of a job that cannot be read, and a job that had targets within the hour and has none now.

    A job that Prometheus never had is a service that this site does not run.
    """
    up = f'up{{job="{job}"}}'
    known = lately(alert, lambda window: f"present_over_time({up}[{window}])", by="job", profile=profile)
    return f"{up} == 0 or ({known} unless on (job) {up})"


def lately(alert: str, seen: Callable[[str], str], *, by: str, profile: Profile) -> str:
    """Groups that were seen within the last hour, and those about which the alert has fired since.

    Without the second part an alert about absent series would end an hour after they were lost, although they are
    still absent.

    Args:
        alert: Name of the alert.
        seen: Given a window, the expression of what was seen within it.
        by: Labels of a group, which the alert has.
        profile: Scales the hour.
    """
    still = fired_lately(alert, by=by, profile=profile)
    return f"(group by ({by}) ({seen(profile.window(HOUR))}) or {still})"


def fired_lately(alert: str, *, by: str, profile: Profile, within_seconds: int = HOUR) -> str:
    """Groups about which an alert has fired within the last hour or another time, for five days at most."""
    fired = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    lately_fired = f"last_over_time({fired}[{profile.window(within_seconds)}])"
    return f"group by ({by}) ({lately_fired} unless {fired} offset {_REMEMBERED})"
