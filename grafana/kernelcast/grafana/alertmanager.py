"""Makes Alertmanager's configuration, as the text of `alertmanager.yaml`; `output` and the commands write it.

Every alert goes to the bridge and then, by severity, to people; the heartbeat, the alert `Watchdog` that always fires,
goes to a receiver of its own. An alert that is a cause inhibits its consequences.
"""

from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from kernelcast.grafana import faults
from kernelcast.grafana.consequences import Consequences, declared
from kernelcast.grafana.rules.model import PRODUCTION, AlertSeverity, Profile, duration, to_yaml
from kernelcast.grafana.site import OPEN, ServerAccess, Site
from kernelcast.wire.errors import ConfigurationError

WEBHOOK_PATH: Final = "/api/v1/alerts"
WEBHOOK_URL: Final = f"http://localhost:19401{WEBHOOK_PATH}"
"""The bridge, which writes every alert to `kernelcast.alerts`."""

FILE: Final = "alertmanager.yaml"

BRIDGE_RECEIVER: Final = "kernelcast"
HEARTBEAT_RECEIVER: Final = "heartbeat"
HEARTBEAT_SECONDS: Final = 300
"""Time between two heartbeats."""
GROUPED_BY: Final = ("alertname", "Hostname", "program")
"""Labels whose alerts share a message."""
WAITS: Final = {
    AlertSeverity.CRITICAL: (10, 300, 3600),
    AlertSeverity.WARNING: (60, 600, 12 * 3600),
    AlertSeverity.INFO: (600, 3600, 4 * 24 * 3600),
}
"""By severity, seconds until the first message of a group, between its messages, and until one is repeated.

Alertmanager repeats after `--data.retention`, 120 h by default, at the latest, and warns of a longer time.
"""
BRIDGE_WAITS: Final = (30, 300, 4 * 3600)
"""The same for the bridge, and for alerts without a severity."""
_MIN_EVALUATIONS: Final = 2
"""Least time of a wait in the demo, in evaluations of the rules."""

_HEADING: Final = (
    "Made by `kernelcast grafana alertmanager-config`.\n"
    "1. Give the receivers critical, warning, info and heartbeat addresses: without them no person gets a message.\n"
    "   people.yaml, which `kernelcast grafana files --output DIR` writes, shows how. What gets the heartbeat must\n"
    "   raise an alarm when it stops. `kernelcast grafana files` keeps a file whose receivers are yours, and writes\n"
    "   the new text to FILE.new.\n"
    "2. Check the file with `amtool check-config FILE`, and start Alertmanager with `--config.file=FILE`."
)
_OF_THE_BRIDGE: Final = "\nThe receiver kernelcast is the bridge, which writes every alert to Kafka."


def render(webhook_url: str = WEBHOOK_URL, profile: Profile = PRODUCTION, access: ServerAccess = OPEN) -> str:
    """A complete configuration.

    Args:
        webhook_url: Where the bridge takes alerts: `http://BRIDGE/api/v1/alerts`. Unused at a site without a bridge.
        profile: Which services the site runs, and the factor by which the demo's times are shorter.
        access: How Alertmanager reaches the bridge: certificate authority, user and password.

    Raises:
        ConfigurationError: `webhook_url` is no address that Alertmanager can post to.
    """
    document = {
        "route": {
            "receiver": BRIDGE_RECEIVER if profile.jobs.bridge else AlertSeverity.WARNING.value,
            "group_by": list(GROUPED_BY),
            **waits(BRIDGE_WAITS, profile),
            "routes": [heartbeat_route(profile), *bridge_routes(profile), *severity_routes(profile)],
        },
        "inhibit_rules": inhibitions(profile),
        "receivers": [
            *bridge_receivers(webhook_url, profile, access),
            {"name": HEARTBEAT_RECEIVER},
            *({"name": severity.value} for severity in WAITS),
        ],
    }
    return to_yaml(document, heading=_HEADING + (_OF_THE_BRIDGE if profile.jobs.bridge else ""))


def waits(seconds: tuple[int, int, int], profile: Profile) -> dict[str, str]:
    """The times of a route: `seconds` in production, shorter in the demo."""
    names = ("group_wait", "group_interval", "repeat_interval")
    return {name: _scaled(value, profile) for name, value in zip(names, seconds, strict=True)}


def _scaled(seconds: int, profile: Profile) -> str:
    """A time, scaled as the profile scales the rules' own, but in the demo not below two evaluations of the rules.

    Alerts of one cause begin and end an evaluation or two apart: with shorter times each would be a message of its own.
    """
    minimum = min(seconds, _MIN_EVALUATIONS * profile.evaluation_seconds) if profile.shrink > 1 else 0
    return duration(max(minimum, seconds // profile.shrink))


def heartbeat_route(profile: Profile) -> dict[str, Any]:
    """The route of the heartbeat, to its own receiver only: not to the bridge either.

    Alertmanager looks once in `group_interval` whether the last message is older than `repeat_interval`. Sending takes
    time, so with equal times the message is a little younger, and only every second heartbeat is sent.
    """
    every, least = (_scaled(seconds, profile) for seconds in (HEARTBEAT_SECONDS, HEARTBEAT_SECONDS * 4 // 5))
    return {
        "receiver": HEARTBEAT_RECEIVER,
        "matchers": ['alertname="Watchdog"'],
        "group_wait": "0s",
        "group_interval": every,
        "repeat_interval": least,
    }


def bridge_routes(profile: Profile) -> list[dict[str, Any]]:
    """The route of every alert to the bridge, which continues to the severities; none at a site without a bridge."""
    return [{"receiver": BRIDGE_RECEIVER, "matchers": [], "continue": True}] if profile.jobs.bridge else []


def webhook_of(site: Site) -> str:
    """The webhook of the site's first bridge; the default address at a site without one."""
    if not site.bridge.targets:
        return WEBHOOK_URL
    return f"{site.bridge.access.scheme}://{site.bridge.targets[0]}{WEBHOOK_PATH}"


def bridge_receivers(webhook_url: str, profile: Profile, access: ServerAccess = OPEN) -> list[dict[str, Any]]:
    """The bridge's webhook; none at a site without a bridge.

    Raises:
        ConfigurationError: `webhook_url` is no address that Alertmanager can post to.
    """
    if not profile.jobs.bridge:
        return []
    parts = urlsplit(webhook_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"--webhook-url is {webhook_url!r}; it must be like {WEBHOOK_URL}")
    client = {"http_config": access.client()} if access.client() else {}
    webhook = {"url": webhook_url, "send_resolved": True, "max_alerts": 0} | client  # 0: every alert of a group
    return [{"name": BRIDGE_RECEIVER, "webhook_configs": [webhook]}]


def has_own_receivers(held: str, generated: str) -> bool:
    """Whether a configuration has receivers, apart from the bridge's, that differ from the generated ones.

    One that is not YAML any more is somebody's work, too.
    """
    try:
        return _people(held) != _people(generated)
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        return True


def _people(configuration: str) -> list[Any]:
    """The receivers for people."""
    receivers = yaml.safe_load(configuration)["receivers"]
    return [receiver for receiver in receivers if receiver["name"] != BRIDGE_RECEIVER]


def severity_routes(profile: Profile) -> list[dict[str, Any]]:
    """A route for each severity, with its own receiver and waits."""
    return [
        {"receiver": severity.value, "matchers": [f'severity="{severity}"'], **waits(seconds, profile)}
        for severity, seconds in WAITS.items()
    ]


def inhibitions(profile: Profile) -> list[dict[str, Any]]:
    """The rules of inhibition: of faults' consequences, of alerts' consequences, and of warnings.

    A critical alert inhibits the warning of the same name about the same kernel, program or GPU.
    """
    warning_by_critical = {
        "source_matchers": ['severity="critical"'],
        "target_matchers": ['severity="warning"'],
        "equal": ["alertname", "Hostname", "gpu", "program", "kernel"],
    }
    return [*faults.inhibitions(), *(_inhibition(alert) for alert in declared(profile)), warning_by_critical]


def _inhibition(alert: Consequences) -> dict[str, Any]:
    """The rule of one alert's consequences, about the same values of the labels `subject`."""
    names = "|".join(alert.silenced)
    target = f'alertname="{names}"' if len(alert.silenced) == 1 else f'alertname=~"{names}"'
    about = [alert.about] if alert.about else []
    rule = {
        "source_matchers": [f'alertname="{alert.cause}"', *([alert.matcher] if alert.matcher else [])],
        "target_matchers": [target, *about],
    }
    return rule | ({"equal": list(alert.subject)} if alert.subject else {})
