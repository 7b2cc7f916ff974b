"""Events (annotations) drawn over every graph: alerts, XIDs, restarts, deploys, hints that were kept or rolled back.

Each page has all of them; `pages.page` adds them.
"""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards.frame import ALERT_SUBJECT, OWN_ALERTS
from kernelcast.grafana.model.dashboard import Annotation
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import gpu
from kernelcast.wire.identity import VERSION_LABELS

_STARTED: Final = "process_start_time_seconds"
_STEP: Final = "1m"
"""Annotations are asked for at this step."""
_RESTART: Final = "10m"
"""A program that restarts within this time with the same versions is no deploy."""
_VERSIONS: Final = dict(zip(VERSION_LABELS, ("code", "image", "CUDA", "driver"), strict=True))


def everywhere() -> tuple[Annotation, ...]:
    """The events that every page shows, whatever variables it has."""
    return (_alerts(), _xids(), _restarts(), _deploys(), _hints("kept", "green"), _hints("rolled_back", "orange"))


def _alerts() -> Annotation:
    return Annotation(
        "Alerts",
        f'group by (alertname, severity, {ALERT_SUBJECT}) (ALERTS{{alertstate="firing", {OWN_ALERTS}}})',
        "{{alertname}}",
        "{{severity}} {{Hostname}} GPU {{gpu}} {{program}}",
        "red",
    )


def _xids() -> Annotation:
    errors = f'{promql.name(gpu.XID_ERRORS)}{{job=~"$job"}}'
    expr = promql.marked(errors, of="Hostname, gpu, xid, err_msg", step=_STEP)
    return Annotation("XIDs", expr, "XID {{xid}}", "{{Hostname}} GPU {{gpu}}: {{err_msg}}", "dark-red")


def _restarts() -> Annotation:
    started = f'{_STARTED}{{job=~"$service"}}'
    # A daemon that was away for longer than a step has no sample just before.
    expr = f"{started} > last_over_time({started}[{promql.LOOK_BACK}] offset {_STEP})"
    return Annotation("Restarts", expr, "Restart", "{{job}} {{instance}}", "blue")


def _deploys() -> Annotation:
    changed = " or ".join(_changed(label, words) for label, words in _VERSIONS.items())
    return Annotation("Deploys", changed, "Deploy", "{{program}}: {{version}}", "super-light-blue")


def _changed(label: str, words: str) -> str:
    """Versions that a program has not had before, under the label `version`.

    Not of a program that is new, nor a version that was not known before, as CUDA's until the GPU is first used.
    """
    present = f'{promql.name(kernel.PROGRAM_INFO)}{{job=~"$job", {label}!=""}}'
    before = f"last_over_time({present}[{_RESTART}] offset {_STEP})"
    versions = f"group by (program, {label}) ({present}) unless group by (program, {label}) ({before})"
    known = f"{versions} and on (program) group by (program) ({before})"
    return f'label_replace({known}, "version", "{words} $1", "{label}", "(.*)")'


def _hints(state: str, color: str) -> Annotation:
    words = state.replace("_", " ")
    acted = f'{promql.name(kernel.HINT_OUTCOMES)}{{job=~"$job", state="{state}"}}'
    return Annotation(
        f"Hints {words}",
        f"sum by (program, tunable) ({promql.marked(acted, step=_STEP)})",
        f"Hint {words}",
        "{{program}}: {{tunable}}",
        color,
    )
