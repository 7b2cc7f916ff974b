"""Alertmanager's configuration: group by subject, silence the consequences of a known cause, tell the bridge."""

from typing import Any, Final
from urllib.parse import urlsplit

from kernelcast.grafana.rules.model import DEMO, PRODUCTION, Profile, duration, to_yaml
from kernelcast.grafana.rules.recording import PREDICTOR_JOB
from kernelcast.wire.errors import ConfigurationError

WEBHOOK_URL: Final = "http://localhost:19401/api/v1/alerts"
"""The bridge, which writes every alert to `kernelcast.alerts`."""

FILE: Final = "alertmanager.yaml"

_RECEIVER: Final = "kernelcast"
_HEARTBEAT: Final = "heartbeat"
_DEAD_NODE: Final = 'alertname="KernelcastExporterStale"'
_OF_A_GPU: Final = "Kernelcast(Gpu.+|Kernel.+|Infiniband.+|DegradationPredicted|BreachImminent)"
_THROUGH_THE_BRIDGE: Final = f"KernelcastExporterStale|KernelcastProducerSilent|KernelcastForecast.+|{_OF_A_GPU}"
_HEADING: Final = (
    "Made by `kernelcast grafana alertmanager-config`. The bridge writes every alert to Kafka;\n"
    "add receivers for people beside it. The heartbeat receiver has no address: give it one that notices silence."
)


def render(webhook_url: str = WEBHOOK_URL, profile: Profile = PRODUCTION) -> str:
    """A complete configuration.

    Args:
        webhook_url: Where the bridge takes alerts: `http://BRIDGE/api/v1/alerts`.
        profile: `DEMO` shortens the times to seconds.

    Raises:
        ConfigurationError: Not an address that Alertmanager can post to.
    """
    parts = urlsplit(webhook_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"--webhook-url is {webhook_url!r}; it must be like {WEBHOOK_URL}")
    wait, interval, repeat = (1, 1, 60) if profile.name == DEMO.name else (30, 300, 4 * 3600)
    document = {
        "route": {
            "receiver": _RECEIVER,
            "group_by": ["alertname", "Hostname", "program"],
            "group_wait": duration(wait),
            "group_interval": duration(interval),
            "repeat_interval": duration(repeat),
            "routes": [_heartbeat(interval)],
        },
        "inhibit_rules": _inhibitions(),
        "receivers": [
            {"name": _RECEIVER, "webhook_configs": [{"url": webhook_url, "send_resolved": True, "max_alerts": 0}]},
            {"name": _HEARTBEAT},
        ],
    }
    return to_yaml(document, heading=_HEADING)


def _heartbeat(interval: int) -> dict[str, Any]:
    every = duration(interval)
    return {
        "receiver": _HEARTBEAT,
        "matchers": ['alertname="Watchdog"'],
        "group_wait": "0s",
        "group_interval": every,
        "repeat_interval": every,
    }


def _inhibitions() -> list[dict[str, Any]]:
    """A known cause silences what follows from it, on the same subject."""
    return [
        # Without the bridge every alert about measurements loses its data: nothing is sent, also no false end.
        _silences('alertname="KernelcastBridgeDown"', f'alertname=~"{_THROUGH_THE_BRIDGE}"', []),
        _silences(_DEAD_NODE, 'alertname="KernelcastProducerSilent"', ["job", "instance"]),
        _silences(_DEAD_NODE, f'alertname=~"{_OF_A_GPU}"', ["Hostname"]),
        _silences(
            'alertname="KernelcastPredictorDown"',
            ['alertname="KernelcastProducerSilent"', f'job="{PREDICTOR_JOB}"'],
            [],
        ),
        _silences(
            'alertname="KernelcastBreachImminent"',
            'alertname="KernelcastDegradationPredicted"',
            ["Hostname", "gpu", "program", "kernel", "metric"],
        ),
        _silences(
            'alertname="KernelcastGpuDown"', 'alertname=~"KernelcastGpu(Silent|RowsUnreadable)"', ["Hostname", "gpu"]
        ),
        _silences('alertname="KernelcastGpuThrottling"', 'alertname="KernelcastKernelSlower"', ["Hostname", "gpu"]),
        _silences(
            'alertname="KernelcastGpuRowRemapFailure"',
            'alertname="KernelcastGpuMemoryRowsRemapped"',
            ["Hostname", "gpu"],
        ),
        _silences('severity="critical"', 'severity="warning"', ["alertname", "Hostname", "gpu", "program", "kernel"]),
    ]


def _silences(source: str, target: str | list[str], equal: list[str]) -> dict[str, Any]:
    targets = [target] if isinstance(target, str) else target
    return {"source_matchers": [source], "target_matchers": targets} | ({"equal": equal} if equal else {})
