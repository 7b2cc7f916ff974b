"""Posts findings to Alertmanager's API v2, for a site whose Prometheus has none of our rules.

An alert is posted in each cycle while its finding lasts, and once more with its end. Name and severity are those of the
rule that would fire on the finding, so that the same routes and inhibitions fit. Its labels are those of
that rule too, so that Alertmanager takes the alerts of two replicas, and what the rule still holds, for one.

API: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml
"""

import http.client
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from prometheus_client import CollectorRegistry

from kernelcast.predictor.access import HttpAccess
from kernelcast.predictor.alarms.candidates import IMMINENT_SECONDS
from kernelcast.predictor.without_kafka.remembered import REMEMBERED_SECONDS
from kernelcast.runtime.instruments import counter
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.web.requests import failure, open_url
from kernelcast.view.words import duration
from kernelcast.wire.catalogue.advice import ADVICE
from kernelcast.wire.catalogue.kernel import DURATION
from kernelcast.wire.catalogue.phrases import SECONDS, phrase
from kernelcast.wire.catalogue.predictor import ALERTS_POSTED
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.findings import WIDE_TIMES, Finding, FindingState, Severity

LABELS: Final = ("rack", "Hostname", "UUID", "gpu", "GPU_I_ID", "program", "rank", "kernel")
"""Labels of a finding that its alert has."""
LASTS_SECONDS: Final = float(REMEMBERED_SECONDS)
"""Time for which an alert fires without being posted again: a predictor that starts within it reads the finding back.

The end of a finding is posted, so only a predictor that is away for longer ends its alerts by this.
"""
TIMEOUT_SECONDS: Final = 5.0
WHOLE_SECONDS: Final = 10.0
_log = get_logger(__name__)


class AlertSender:
    """Posts the findings of one predictor. Only the thread that runs cycles uses it."""

    def __init__(self, url: str, access: HttpAccess, registry: CollectorRegistry) -> None:
        self._url, self._access = f"{url.rstrip('/')}/api/v2/alerts", access
        self._posted = counter(ALERTS_POSTED, registry)
        self._firing: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
        for outcome in ("sent", "failed"):
            self._posted.labels(outcome)

    def post(
        self, findings: Iterable[Finding], users: Mapping[tuple[str, str], Mapping[str, str]], now_seconds: float
    ) -> None:
        """Post the findings that last, and the end of those that do not any more; a failure is logged.

        Args:
            findings: All that last; those whose page is held are left out.
            users: By UUID and instance, pod and job of the GPU.
            now_seconds: The time of this machine, Unix.
        """
        alerts = [_alert(finding, users, now_seconds) for finding in findings if not finding.held]
        firing = {tuple(sorted(alert["labels"].items())): alert for alert in alerts}
        ended = [alert | {"endsAt": _time(now_seconds)} for key, alert in self._firing.items() if key not in firing]
        if not firing and not ended:
            return
        try:
            self._send([*firing.values(), *ended])
        except (OSError, http.client.HTTPException, ConfigurationError) as error:
            self._posted.labels("failed").inc(len(firing) + len(ended))
            _log.warning("alerts not posted", url=self._url, reason=_reason(error))
            return
        self._posted.labels("sent").inc(len(firing) + len(ended))
        self._firing = firing

    def _send(self, alerts: list[dict[str, Any]]) -> None:
        headers = {"Content-Type": "application/json", "User-Agent": "kernelcast"} | self._access.headers()
        request = urllib.request.Request(self._url, data=orjson.dumps(alerts), headers=headers)  # noqa: S310  the settings checked the scheme
        limits = TIMEOUT_SECONDS, self._access.context()
        with open_url(request, *limits, whole_seconds=WHOLE_SECONDS, with_proxy=self._access.with_proxy) as answer:
            answer.read(65_536)


def _alert(finding: Finding, users: Mapping[tuple[str, str], Mapping[str, str]], now_seconds: float) -> dict[str, Any]:
    known = dict(finding.labels)
    labels = {name: known[name] for name in LABELS if known.get(name)}
    labels["alertname"], labels["severity"] = name_and_severity(finding)
    labels |= {"cause": str(finding.cause), "metric": finding.metric}
    user = users.get((known.get("UUID", ""), known.get("GPU_I_ID", "")), {})
    annotations = {
        "summary": summary(finding, now_seconds),
        "action": ADVICE[finding.cause].first,
        "finding_id": finding.finding_id,
        **user,
    }
    return {
        "labels": labels,
        "annotations": annotations,
        "startsAt": _time(min(finding.began_ns / 1e9, now_seconds)),
        "endsAt": _time(now_seconds + LASTS_SECONDS),
    }


def name_and_severity(finding: Finding) -> tuple[str, str]:
    """Name and severity of a finding's alert: those of the rule that would fire on it, so that routes fit both."""
    if finding.severity is Severity.TICKET:
        return "KernelcastTicketOpen", "info"
    if finding.metric == DURATION.prometheus_name and finding.state is not FindingState.PREDICTED:
        return "KernelcastWorkSlower", "warning"
    if finding.state is FindingState.OBSERVED:
        return "KernelcastFaultObserved", "warning"
    if finding.state is FindingState.PASSED:
        return "KernelcastLimitPassed", "critical"
    latest = finding.seconds_to_limit[2] if finding.seconds_to_limit is not None else None
    if latest is not None and latest < IMMINENT_SECONDS:
        return "KernelcastBreachImminent", "critical"
    return "KernelcastDegradationPredicted", "warning"


def summary(finding: Finding, now_seconds: float) -> str:
    """What is wrong, where, how much and since when, in one line, in the words of the rules' summaries."""
    when = f", for {duration(now_seconds - finding.began_ns / 1e9)}"
    if finding.state is FindingState.PASSED:
        when = f", for {duration(now_seconds - finding.passed_ns / 1e9)}"
    elif finding.state is FindingState.PREDICTED:
        when = f", reached {_ahead(*(finding.seconds_to_limit or (None, None, None)))}"
    return f"{_where(finding)} {_figures(finding)}{when}: {ADVICE[finding.cause].culprit}"


def _ahead(early: float | None, median: float | None, late: float | None) -> str:
    if median is None:
        return "within a day"
    if median < 60.0:
        return "any minute"
    if early is not None and late is not None and median >= WIDE_TIMES * early:
        return f"within {duration(late)}"
    return f"in about {duration(median)}"


def _where(finding: Finding) -> str:
    """The subject of a finding; one of a node, rack or program is told by one of its GPUs, which is named."""
    labels = dict(finding.labels)
    node = labels.get("Hostname", "")
    gpu = f"GPU {labels['gpu']} of {node}" if labels.get("gpu") else ""
    if labels.get("kernel"):
        on_gpu = f" on {gpu}" if gpu else ""
        return f"Kernel {labels['kernel']} of {labels.get('program', '')}{on_gpu}"
    if gpu:
        return gpu
    names = (("Rack", labels.get("rack")), ("Node", node), ("Program", labels.get("program")))
    subject = next((f"{kind} {name}" for kind, name in names if name), "The fleet")
    leading = dict(finding.evidence[0].labels) if finding.evidence else {}
    if not leading.get("gpu"):
        return subject
    its_node = "" if node else f" of {leading.get('Hostname', '?')}"
    return f"{subject} (GPU {leading['gpu']}{its_node})"


def _figures(finding: Finding) -> str:
    if finding.value is None:
        return f"has a finding about {finding.metric}"
    known = phrase(finding.metric)
    verb, unit = (known.verb, known.unit) if known is not None else (f"has {finding.metric}", "")
    limit = "" if finding.limit is None else f", limit {_quantity(finding.limit, unit)}"
    return f"{verb} {_quantity(finding.value, unit)}{limit}"


def _quantity(value: float, unit: str) -> str:
    if unit == SECONDS:
        return duration(value)
    return f"{value:.0f} {unit}" if unit else f"{value:g}"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"status {error.code}"
    return failure(error)
