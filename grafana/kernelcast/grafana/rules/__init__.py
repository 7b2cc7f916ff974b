"""Recording and alerting rules for Prometheus, and the runbooks that alerts lead to."""

from kernelcast.grafana.rules.model import (
    DEMO,
    PRODUCTION,
    PROFILES,
    RUNBOOKS_URL,
    AlertRule,
    Profile,
    profile_named,
)
from kernelcast.grafana.rules.render import (
    ALERTS_FILE,
    CLASSIC_FILE,
    NATIVE_FILE,
    alerts,
    render,
    runbooks,
)

__all__ = [
    "ALERTS_FILE",
    "CLASSIC_FILE",
    "DEMO",
    "NATIVE_FILE",
    "PRODUCTION",
    "PROFILES",
    "RUNBOOKS_URL",
    "AlertRule",
    "Profile",
    "alerts",
    "profile_named",
    "render",
    "runbooks",
]
