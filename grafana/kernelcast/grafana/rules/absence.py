"""PromQL for alerts about series that are no longer written: the groups that should still have them."""

from typing import Final

from kernelcast.grafana.rules.model import DAY, HOUR, Profile, duration

_REMEMBERED: Final = duration(5 * DAY)
"""Longest time for which an alert about absent series fires; not a week, so that weekly maintenance is no pattern."""


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
