"""PromQL for alerts about absence: groups whose series are no longer written, and instances that do not work."""

from typing import Final

from kernelcast.grafana.rules.model import DAY, HOUR, Profile, duration

_REMEMBERED: Final = duration(5 * DAY)
"""Longest time for which an alert about absent series fires; not a week, so that weekly maintenance is no pattern."""
ALL_INSTANCES: Final = 'instances="all"'
"""Matcher for alerts of `failing` while no instance of the service works."""


def failing(failed: str, *, works: str) -> str:
    """Instances of a service that fail, with the label `instances="all"` while none works.

    Alertmanager mutes by that label: while one of several bridges works, the series that it brings are still true.
    """
    return f'label_replace(({failed}) unless on () {works}, "instances", "all", "", "") or on () ({failed})'


def lately(alert: str, metric: str, *, by: str, profile: Profile) -> str:
    """Groups that were seen within the last hour, and those about which the alert has fired since.

    Without the second part an alert about absent series would end an hour after they were lost, although they are
    still absent.

    Args:
        alert: Name of the alert.
        metric: Name of the metric that is expected.
        by: Labels of a group, which the alert has.
        profile: Scales the hour.
    """
    hour = profile.window(HOUR)
    fired = f'ALERTS{{alertname="{alert}", alertstate="firing"}}'
    still = f"last_over_time({fired}[{hour}]) unless {fired} offset {_REMEMBERED}"
    return f"(group by ({by}) (present_over_time({metric}[{hour}])) or group by ({by}) ({still}))"
