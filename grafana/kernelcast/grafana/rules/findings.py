"""Alerts about findings: what the predictor found after grouping, false-discovery control, damping and the budget.

Limits that are passed and hardware faults wait for none of these. While no predictor works, nobody knows whether a
finding is over: its alert goes on, for five days at most, and says so.
"""

from dataclasses import replace
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.addresses import GPUS, KERNELS, PIPELINE
from kernelcast.grafana.rules.absence import fired_lately
from kernelcast.grafana.rules.model import MINUTE, SHORT_NAME, AlertRule, AlertSeverity, Profile, duration
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue import predictor as rows
from kernelcast.wire.catalogue.advice import ADVICE
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.forecast import DEGRADATION_ALERT
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.catalogue.model import Metric
from kernelcast.wire.catalogue.phrases import PHRASES, SECONDS, Phrase
from kernelcast.wire.findings import LIMIT_QUANTILES, WIDE_TIMES

_KEPT_SECONDS: Final = 10 * MINUTE
"""Longer than a restart of the predictor, and than the time after which it counts as gone."""
_GONE_SECONDS: Final = 5 * MINUTE
"""Time without any predictor's findings after which their alerts go on as last known."""
_OWN_RULE_SECONDS: Final = 10 * MINUTE
"""Time that an observed fault waits, longer than the alert of the hardware itself, which mutes this one."""
SUBJECT: Final = (
    *("rack", "Hostname", "UUID", "gpu", "GPU_I_ID", "program", "rank", "kernel"),
    *("metric", "cause"),
)
"""Labels of an alert: two replicas of the predictor, which find the same, fire one."""
_BY: Final = ", ".join(SUBJECT)
_KERNEL: Final = f'metric="{kernel.DURATION.prometheus_name}"'
_NO_KERNEL: Final = _KERNEL.replace("=", "!=", 1)
_PAGE: Final = 'urgency="page"'

_NAMED_SUBJECT: Final = (
    f'{{{{ $subject := printf "{", ".join(f"{label}=%q" for label in SUBJECT)}" '
    f"{' '.join(f'$labels.{label}' for label in SUBJECT)} }}}}"
)
"""Sets $subject, the matchers of the alert's labels, with which its message asks for the finding's values."""

_WHERE: Final = (
    "{{ with $labels.kernel }}Kernel {{ " + SHORT_NAME + " . }} of {{ end }}"
    "{{ if and $labels.kernel $labels.gpu }}{{ $labels.program }} on {{ end }}"
    "{{ if $labels.gpu }}GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
    "{{ else if $labels.rack }}Rack {{ $labels.rack }}"
    "{{ else if $labels.Hostname }}Node {{ $labels.Hostname }}"
    "{{ else }}{{ if not $labels.kernel }}Program {{ end }}{{ $labels.program }}{{ end }}"
)
_OTHER_PHRASE: Final = ("has {{ $labels.metric }}", "{{ $v | humanize }}")
_LIST: Final = "`kernelcast findings list`, or the predictor's /api/v1/findings at a site without Kafka"
_AS_LAST_KNOWN: Final = " (as last known: no predictor works)"


def alerts(profile: Profile) -> tuple[AlertRule, ...]:
    """Alerts: a limit passed, soon or later; slower work; other faults; tickets; pages beyond the budget."""
    made = (_passed, _imminent, _predicted, _slower, _fault, _ticket)
    return (*(rule(profile) for rule in made), _held())


def _rule(  # noqa: PLR0913  what differs between alerts about findings
    profile: Profile,
    *,
    name: str,
    expr: str,
    severity: AlertSeverity,
    summary: str,
    description: str,
    first: str,
    hold_seconds: int = 0,
) -> AlertRule:
    """An alert about each finding that an expression gives; it lasts as the finding does."""
    return AlertRule(
        name=name,
        expr=_lasting(name, expr, profile),
        hold_seconds=hold_seconds,
        keep_seconds=_KEPT_SECONDS,
        severity=severity,
        summary=f"{_NAMED_SUBJECT}{summary}",
        description=f"{description} {_details()}",
        action=_first(),
        first=first,
        subject=("Hostname", "gpu", "metric"),
        dashboard=GPUS,
        steps=_ADVISED,
    )


def _passed(profile: Profile) -> AlertRule:
    return _rule(
        profile,
        name="KernelcastLimitPassed",
        expr=_since(_PAGE, 'state="passed"', _NO_KERNEL),
        severity=AlertSeverity.CRITICAL,
        summary=f"{_WHERE}{_gpus_passed(profile)} {_figures(profile, 'has passed its limit')}{_FOR}{_HOTTER}: "
        f"{_culprit()}",
        description="The value has passed its limit, as the mean over five minutes, and is not clearly back. The value "
        "of the alert is the time since then.",
        first="Do what the list below says of the cause; the message has the same.",
    )


def _imminent(profile: Profile) -> AlertRule:
    soon = profile.thresholds.breach_soon_seconds
    matchers = (_PAGE, 'state="predicted"', _NO_KERNEL)
    nearly_sure = f"{_expected('0.9', *matchers)} - time() < {soon:g}"
    left = f"clamp_min({_expected('0.5', *matchers)} - time(), 0) and ({nearly_sure})"
    return _rule(
        profile,
        name="KernelcastBreachImminent",
        expr=left,
        severity=AlertSeverity.CRITICAL,
        summary=f"{_WHERE} {_figures(profile, 'comes near its limit')}{_reached(profile, 'any minute')}{_HOTTER}: "
        f"{_culprit()}",
        description="A finding of the predictor: the limit is reached within an hour with a probability of at least "
        "0.9. The value of the alert is the time until a probability of one half.",
        first="Do what the list below says of the cause, or move the job; the message has the same.",
    )


def _predicted(profile: Profile) -> AlertRule:
    matchers = (_PAGE, 'state="predicted"')
    left = f"clamp_min({_expected('0.5', *matchers)} - time(), 0) or 0 * {_since(*matchers)}"
    return _rule(
        profile,
        name="KernelcastDegradationPredicted",
        expr=left,
        severity=AlertSeverity.WARNING,
        summary=f"{_WHERE} {_figures(profile, 'comes near its limit')}{_reached(profile, 'within a day')}{_HOTTER}: "
        f"{_culprit()}",
        description="A finding of the predictor: its limit will be reached within a day. The prediction has lasted "
        "for long enough, given how many series are watched. The value of the alert is the time until a probability of "
        "one half, 0 where that is not known.",
        first="Do today what the list below says of the cause; the message has the same.",
    )


def _slower(profile: Profile) -> AlertRule:
    rule = _rule(
        profile,
        name="KernelcastWorkSlower",
        expr=_since(_PAGE, 'state=~"passed|observed"', _KERNEL),
        severity=AlertSeverity.WARNING,
        summary=f"{_WHERE} {_figures(profile, 'is slower than before')}{_FOR}: {_culprit()}",
        description="A finding of the predictor: a kernel takes longer than its usual duration for the same launch "
        "configuration, region and version of the code, or a rank longer than the others. The value of the alert is "
        "the time since then.",
        first="Do today what the list below says of the cause; the message has the same.",
    )
    return replace(rule, subject=("Hostname", "gpu", "program"), dashboard=KERNELS)


def _fault(profile: Profile) -> AlertRule:
    return _rule(
        profile,
        name="KernelcastFaultObserved",
        expr=_since(_PAGE, 'state="observed"', _NO_KERNEL),
        hold_seconds=_OWN_RULE_SECONDS,
        severity=AlertSeverity.WARNING,
        summary=f"{_WHERE} {_figures(profile, 'has a fault', against='')}{_FOR}: {_culprit()}",
        description="A finding of the predictor about a fault that exists already. The alert of the hardware itself, "
        "such as KernelcastGpuXidHardware, comes first and mutes this one; it fires alone where no other alert shows "
        "the fault.",
        first="Do what the list below says of the cause; the message has the same.",
    )


def _ticket(profile: Profile) -> AlertRule:
    return _rule(
        profile,
        name="KernelcastTicketOpen",
        expr=_since('urgency="ticket"'),
        hold_seconds=_OWN_RULE_SECONDS,
        severity=AlertSeverity.INFO,
        summary=f"{_WHERE} {_figures(profile, 'has a finding', against='')}{_FOR}: {_culprit()}",
        description="A finding of the predictor that can wait for working hours.",
        first=f"Do in working hours what the list below says of the cause. All findings: {_LIST}.",
    )


def _held() -> AlertRule:
    return AlertRule(
        name="KernelcastPagesHeld",
        who="operators of kernelcast",
        expr=f"sum({promql.name(rows.FINDINGS_HELD)}) > 0",
        hold_seconds=0,
        severity=AlertSeverity.WARNING,
        summary="{{ $value }} findings do not page: the fleet has had its pages of the day",
        description="predictor.alarms.pages_per_day is spent, so more is wrong than is paged. Limits that are passed "
        "are never held.",
        action=f"Look at the whole list before you raise pages_per_day: {_LIST}.",
        dashboard=PIPELINE,
    )


def _since(*matchers: str) -> str:
    """Seconds since findings began, or since their limit was passed."""
    return f"(time() - {_least(rows.FINDING_SINCE, *matchers)})"


def _expected(quantile: str, *matchers: str) -> str:
    return _least(rows.FINDING_EXPECTED, f'quantile="{quantile}"', *matchers)


def _least(row: Metric, *matchers: str) -> str:
    return f"min by ({_BY}) ({promql.name(row)}{{{', '.join(matchers)}}})"


def _lasting(alert: str, present: str, profile: Profile) -> str:
    """Findings that last; without a predictor those about which the alert fired, with the value -1."""
    known = f"present_over_time({promql.name(rows.FINDINGS_TIME)}[{profile.window(_GONE_SECONDS)}])"
    fired = fired_lately(alert, by=_BY, profile=profile, within_seconds=_GONE_SECONDS)
    return f"{present} or -({fired} unless on () {known})"


_FOR: Final = (
    f"{{{{ if lt $value 0.0 }}}}{_AS_LAST_KNOWN}{{{{ else }}}}, for {{{{ $value | humanizeDuration }}}}{{{{ end }}}}"
)


def _reached(profile: Profile, otherwise: str) -> str:
    """When the limit will be reached, by the alert's value, or by when if that is wide; other words where it is 0."""
    early, median, late = (
        _latest(profile, rows.FINDING_EXPECTED, f"quantile='{quantile}'") for quantile in LIMIT_QUANTILES
    )
    wide = f"{late} - time() and {median} - time() >= {WIDE_TIMES:g} * ({early} - time())"
    return (
        f"{{{{ if lt $value 0.0 }}}}{_AS_LAST_KNOWN}{{{{ else if gt $value 0.0 }}}}, reached "
        f'{{{{ with printf "{wide}" $subject $subject $subject | query }}}}'
        "within {{ . | first | value | humanizeDuration }}"
        f"{{{{ else }}}}in about {{{{ $value | humanizeDuration }}}}{{{{ end }}}}"
        f"{{{{ else }}}}, reached {otherwise}{{{{ end }}}}"
    )


def _hotter() -> str:
    """How much hotter the GPU is than a week ago at the same power; nothing where that is not known, or not hotter."""
    of_gpu = "{Hostname=%q, gpu=%q}[15m]"
    heat, power = (f"avg_over_time({promql.name(row)}{of_gpu}" for row in (device.GPU_TEMP, device.POWER_USAGE))
    before = " offset 1w)"
    same = f"abs(max({power})) / max({power}{before}) - 1) < 0.1"
    query = f"(max({heat})) - max({heat}{before}) >= 1) and on () ({same})"
    arguments = " $labels.Hostname $labels.gpu"
    return (
        '{{ if eq $labels.cause "thermal" }}'
        f'{{{{ with printf "{query}"{arguments * 4} | query }}}}; at '
        f'{{{{ range printf "max({power}))"{arguments} | query }}}}{{{{ . | value | printf "%.0f" }}}}{{{{ end }}}} W '
        '{{ . | first | value | printf "%.0f" }} °C hotter than a week ago{{ end }}{{ end }}'
    )


_HOTTER: Final = _hotter()


def _figures(profile: Profile, otherwise: str, against: str = ", limit ") -> str:
    """Value and limit of the finding, in the unit of its metric; a text where they are not known.

    Args:
        profile: Its time between evaluations.
        otherwise: That text.
        against: Words before the limit; empty to leave it out.
    """
    chain = [
        f'{{{{ {"else if" if number else "if"} match "{phrase.pattern}" $labels.metric }}}}'
        f"{_figure(profile, phrase.verb, _value(phrase), against)}"
        for number, phrase in enumerate(PHRASES)
    ]
    shown = f"{''.join(chain)}{{{{ else }}}}{_figure(profile, *_OTHER_PHRASE, against)}{{{{ end }}}}"
    return f"{{{{ with {_query(profile, rows.FINDING_VALUE)} }}}}{shown}{{{{ else }}}}{otherwise}{{{{ end }}}}"


def _value(phrase: Phrase) -> str:
    if phrase.unit == SECONDS:
        return "{{ $v | humanizeDuration }}"
    return f'{{{{ printf "%.0f" $v }}}} {phrase.unit}'


def _figure(profile: Profile, verb: str, value: str, against: str) -> str:
    shown = f"{{{{ $v := . | first | value }}}}{verb} {value}"
    if not against:
        return shown
    return (
        shown
        + f"{{{{ range {_query(profile, rows.FINDING_LIMIT)} }}}}{{{{ $v := . | value }}}}{against}{value}{{{{ end }}}}"
    )


def _gpus_passed(profile: Profile) -> str:
    """The GPUs that have passed their limit, after the name of a node; nothing after that of a GPU or a rack."""
    window = duration(2 * profile.evaluation_seconds)
    alert = f"{promql.name(DEGRADATION_ALERT)}{{Hostname=%q, metric=%q, cause=%q, state=%q}}"
    query = f'printf "count by (gpu) (last_over_time({alert}[{window}]))"'
    arguments = '$labels.Hostname $labels.metric $labels.cause "passed"'
    return (
        f"{{{{ if and $labels.Hostname (not $labels.gpu) }}}}{{{{ with {query} {arguments} | query }}}} ("
        '{{ range $number, $gpu := sortByLabel "gpu" . }}{{ if $number }}, {{ end }}GPU {{ $gpu.Labels.gpu }}{{ end }})'
        "{{ end }}{{ end }}"
    )


def _query(profile: Profile, row: Metric) -> str:
    """The one value of a finding that has the labels of the alert."""
    return f'printf "{_latest(profile, row)}" $subject | query'


def _latest(profile: Profile, row: Metric, *matchers: str) -> str:
    """An expression of that value, with %s for `$subject`.

    It looks back over two evaluations: an alert that is kept keeps the text of the last one, and a scrape may come
    between the condition and its text.
    """
    window = duration(2 * profile.evaluation_seconds)
    return f"max(last_over_time({promql.name(row)}{{{', '.join(('%s', *matchers))}}}[{window}]))"


def _by_cause(texts: dict[Cause, str]) -> str:
    """The text of the alert's cause."""
    chain = [
        f'{{{{ {"else if" if number else "if"} eq $labels.cause "{cause}" }}}}{text}'
        for number, (cause, text) in enumerate(texts.items())
    ]
    return f"{''.join(chain)}{{{{ end }}}}"


def _culprit() -> str:
    return _by_cause({cause: advice.culprit for cause, advice in ADVICE.items()})


def _first() -> str:
    return _by_cause({cause: advice.first for cause, advice in ADVICE.items()})


_ADVISED: Final = tuple(f"`{cause}` ({advice.culprit}): {advice.first}" for cause, advice in ADVICE.items())
"""Steps of the runbook: advice about each cause."""


def _details() -> str:
    return (
        "Cause: {{ $labels.cause }}. Its evidence: `kernelcast findings list --json`, or the predictor's "
        "/api/v1/findings at a site without Kafka.{{ with $labels.program }} Program: {{ . }}.{{ end }}"
    )
