"""Alertmanager's configuration: every alert to the bridge, then by severity to people; causes silence consequences."""

from typing import Any, Final
from urllib.parse import urlsplit

from kernelcast.grafana import faults
from kernelcast.grafana.consequences import Consequences, declared
from kernelcast.grafana.rules.model import PRODUCTION, Profile, Severity, duration, to_yaml
from kernelcast.grafana.site import OPEN, Access
from kernelcast.wire.errors import ConfigurationError

WEBHOOK_PATH: Final = "/api/v1/alerts"
WEBHOOK_URL: Final = f"http://localhost:19401{WEBHOOK_PATH}"
"""The bridge, which writes every alert to `kernelcast.alerts`."""

FILE: Final = "alertmanager.yaml"

BRIDGE: Final = "kernelcast"
HEARTBEAT: Final = "heartbeat"
GROUPED_BY: Final = ("alertname", "Hostname", "program")
WAITS: Final = {
    Severity.CRITICAL: (10, 300, 3600),
    Severity.WARNING: (60, 600, 12 * 3600),
    Severity.INFO: (600, 3600, 7 * 24 * 3600),
}
"""Seconds until the first message of a group, between its messages, and until it is sent again."""
BRIDGE_WAITS: Final = (30, 300, 4 * 3600)
_LEAST_EVALUATIONS: Final = 2

_HEADING: Final = (
    "Made by `kernelcast grafana alertmanager-config`. The bridge writes every alert to Kafka. The receivers\n"
    "critical, warning, info and heartbeat have no address: give them one, as in people.yaml. The heartbeat's must\n"
    "notice silence."
)


def render(webhook_url: str = WEBHOOK_URL, profile: Profile = PRODUCTION, access: Access = OPEN) -> str:
    """A complete configuration.

    Args:
        webhook_url: Where the bridge takes alerts: `http://BRIDGE/api/v1/alerts`. Unused at a site without a bridge.
        profile: Divides the times as those of the rules, and says which services run.
        access: TLS and the user of the bridge; the scheme is the URL's.

    Raises:
        ConfigurationError: Not an address that Alertmanager can post to.
    """
    document = {
        "route": {
            "receiver": BRIDGE if profile.jobs.bridge else Severity.WARNING.value,
            "group_by": list(GROUPED_BY),
            **waits(BRIDGE_WAITS, profile),
            "routes": [heartbeat_route(profile), *bridge_routes(profile), *severity_routes(profile)],
        },
        "inhibit_rules": inhibitions(profile),
        "receivers": [
            *bridge_receivers(webhook_url, profile, access),
            {"name": HEARTBEAT},
            *({"name": severity.value} for severity in WAITS),
        ],
    }
    return to_yaml(document, heading=_HEADING)


def waits(seconds: tuple[int, int, int], profile: Profile) -> dict[str, str]:
    """The three times of a route; `seconds` in production."""
    names = ("group_wait", "group_interval", "repeat_interval")
    return {name: _shrunk(value, profile) for name, value in zip(names, seconds, strict=True)}


def _shrunk(seconds: int, profile: Profile) -> str:
    """A time divided as the profile divides the rules' own.

    Alerts of one cause begin and end an evaluation or two apart: with shorter times each of them would be a message.
    """
    least = min(seconds, _LEAST_EVALUATIONS * profile.evaluation_seconds) if profile.shrink > 1 else 0
    return duration(max(least, seconds // profile.shrink))


def heartbeat_route(profile: Profile) -> dict[str, Any]:
    """The heartbeat, sent again and again, to its own receiver only."""
    every = _shrunk(300, profile)
    return {
        "receiver": HEARTBEAT,
        "matchers": ['alertname="Watchdog"'],
        "group_wait": "0s",
        "group_interval": every,
        "repeat_interval": every,
    }


def bridge_routes(profile: Profile) -> list[dict[str, Any]]:
    """Every alert to the bridge, and then on; none at a site without one."""
    return [{"receiver": BRIDGE, "matchers": [], "continue": True}] if profile.jobs.bridge else []


def bridge_receivers(webhook_url: str, profile: Profile, access: Access = OPEN) -> list[dict[str, Any]]:
    """The bridge's webhook.

    Raises:
        ConfigurationError: Not an address that Alertmanager can post to.
    """
    if not profile.jobs.bridge:
        return []
    parts = urlsplit(webhook_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"--webhook-url is {webhook_url!r}; it must be like {WEBHOOK_URL}")
    client = {"http_config": access.client()} if access.client() else {}
    webhook = {"url": webhook_url, "send_resolved": True, "max_alerts": 0} | client
    return [{"name": BRIDGE, "webhook_configs": [webhook]}]


def severity_routes(profile: Profile) -> list[dict[str, Any]]:
    """A route for each severity, with its own receiver and waits."""
    return [
        {"receiver": severity.value, "matchers": [f'severity="{severity}"'], **waits(seconds, profile)}
        for severity, seconds in WAITS.items()
    ]


def inhibitions(profile: Profile) -> list[dict[str, Any]]:
    """The consequences of faults, those of alerts, and each warning beside a critical alert of its name."""
    by_severity = {
        "source_matchers": ['severity="critical"'],
        "target_matchers": ['severity="warning"'],
        "equal": ["alertname", "Hostname", "gpu", "program", "kernel"],
    }
    return [*faults.inhibitions(), *(_inhibition(one) for one in declared(profile)), by_severity]


def _inhibition(one: Consequences) -> dict[str, Any]:
    names = "|".join(one.silenced)
    target = f'alertname="{names}"' if len(one.silenced) == 1 else f'alertname=~"{names}"'
    rule = {
        "source_matchers": [f'alertname="{one.cause}"'],
        "target_matchers": [target],
    }
    return rule | ({"equal": list(one.subject)} if one.subject else {})
