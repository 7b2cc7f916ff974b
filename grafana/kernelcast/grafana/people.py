"""An example of Alertmanager's configuration with receivers for people: e-mail, Slack, PagerDuty, a webhook.

Routes go by severity and by owner; a template has the texts of the messages. `output` writes both files.
"""

from typing import Any, Final

from kernelcast.grafana import alertmanager
from kernelcast.grafana.rules.model import PRODUCTION, AlertSeverity, Profile, to_yaml
from kernelcast.grafana.site import OPEN, ServerAccess

FILE: Final = "people.yaml"
TEMPLATE_FILE: Final = "kernelcast.tmpl"

_SECRETS: Final = "/etc/alertmanager/secrets"
_PAGE: Final = '{{ template "kernelcast.text" . }}'
_SUBJECT: Final = '{{ template "kernelcast.subject" . }}'
_RUNBOOK_OR_PAGE: Final = "{{ with (index .Alerts 0).Annotations }}{{ or .runbook_url .dashboard_url }}{{ end }}"
_HEADING: Final = (
    "Made by kernelcast: alertmanager.yaml with example addresses. Replace them by yours, and remove the kinds of\n"
    f"message that you do not use; then `amtool check-config FILE`, with {TEMPLATE_FILE}, the texts, beside it. Each\n"
    f"secret is read from a file below {_SECRETS}.\n"
    "The routes of owners come first: alerts about a namespace, a program or a job go to the team that owns it."
)
TEMPLATE: Final = """{{/* Made by kernelcast: the texts of messages to people. */}}
{{ define "kernelcast.subject" -}}
[{{ .Status | toUpper }}{{ if eq .Status "firing" }} {{ .Alerts.Firing | len }}{{ end }}] \
{{ .CommonLabels.severity }}: {{ .GroupLabels.alertname }}{{ with .GroupLabels.Hostname }} on {{ . }}{{ end }}\
{{ with .GroupLabels.program }} ({{ . }}){{ end }}
{{- end }}
{{ define "kernelcast.text" -}}
{{ range .Alerts }}{{ .Annotations.summary }}{{ if eq .Status "resolved" }} (over){{ end }}
Alert since: {{ .StartsAt.UTC.Format "2006-01-02 15:04" }} UTC
{{ .Annotations.description }}
First: {{ .Annotations.action }}
{{- with .Annotations.dashboard_url }}
Page: {{ . }}
{{- end }}
{{- with .Annotations.runbook_url }}
Runbook: {{ . }}
{{- end }}

{{ end }}
{{- end }}
"""


def render(
    webhook_url: str = alertmanager.WEBHOOK_URL, profile: Profile = PRODUCTION, access: ServerAccess = OPEN
) -> str:
    """A complete configuration with example addresses.

    Args:
        webhook_url: Where the bridge takes alerts.
        profile: The profile says which services run.
        access: TLS and the user of the bridge.
    """
    document = {
        "global": {
            "smtp_smarthost": "mail.example:587",
            "smtp_from": "alerts@site.example",
            "smtp_auth_username": "alerts",
            "smtp_auth_password_file": f"{_SECRETS}/smtp-password",
        },
        "templates": [TEMPLATE_FILE],
        "route": {
            "receiver": AlertSeverity.WARNING.value,
            "group_by": list(alertmanager.GROUPED_BY),
            **alertmanager.waits(alertmanager.BRIDGE_WAITS, profile),
            "routes": [
                alertmanager.heartbeat_route(profile),
                *alertmanager.bridge_routes(profile),
                *_owners(),
                *alertmanager.severity_routes(profile),
            ],
        },
        "inhibit_rules": alertmanager.inhibitions(profile),
        "receivers": [*alertmanager.bridge_receivers(webhook_url, profile, access), *_receivers()],
    }
    return to_yaml(document, heading=_HEADING)


def _owners() -> list[dict[str, Any]]:
    """Routes of teams; critical alerts also go on to those who are on call."""
    owners = (
        ("team-vision", ['namespace="vision"']),
        ("team-speech", ['program=~"speech-.+"']),
        ("job-owner", ['alertname="KernelcastGpuIdleAllocated"', 'hpc_job=~".+"']),
    )
    return [
        {
            "receiver": name,
            "matchers": matchers,
            "continue": True,
            "group_by": [*alertmanager.GROUPED_BY, "namespace", "hpc_job"],
        }
        for name, matchers in owners
    ]


def _receivers() -> list[dict[str, Any]]:
    chat, mail = _slack("#gpu-alarms"), _mail("gpu-admins")
    return [
        {
            "name": alertmanager.HEARTBEAT_RECEIVER,
            "webhook_configs": [{"url": "https://heartbeat.example/kernelcast", "send_resolved": False}],
        },
        {"name": AlertSeverity.CRITICAL.value, "pagerduty_configs": [_pagerduty()], "slack_configs": [chat]},
        {"name": AlertSeverity.WARNING.value, "slack_configs": [chat], "email_configs": [mail]},
        {"name": AlertSeverity.INFO.value, "email_configs": [mail]},
        {"name": "team-vision", "slack_configs": [_slack("#vision")]},
        {"name": "team-speech", "email_configs": [_mail("speech")]},
        {"name": "job-owner", "webhook_configs": [{"url": "https://jobs.example/alerts", "send_resolved": True}]},
    ]


def _pagerduty() -> dict[str, Any]:
    return {
        "routing_key_file": f"{_SECRETS}/pagerduty-routing-key",
        "send_resolved": True,
        "description": _SUBJECT,
        "details": {"text": _PAGE},
        "links": [{"text": "Runbook", "href": _RUNBOOK_OR_PAGE}],
    }


def _slack(channel: str) -> dict[str, Any]:
    return {
        "api_url_file": f"{_SECRETS}/slack-url",
        "channel": channel,
        "send_resolved": True,
        "title": _SUBJECT,
        "text": _PAGE,
    }


def _mail(name: str) -> dict[str, Any]:
    return {
        "to": f"{name}@site.example",
        "send_resolved": True,
        "headers": {"Subject": _SUBJECT},
        "text": _PAGE,
        "html": "",
    }
