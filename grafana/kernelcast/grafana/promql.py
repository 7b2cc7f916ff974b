"""PromQL made from rows of the catalogue: a dashboard or a rule never spells a metric's name or guesses its labels."""

from collections.abc import Collection
from typing import Final

from kernelcast.wire.catalogue import Metric, kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.devices.device import DEVICE_LABELS
from kernelcast.wire.catalogue.windows import measured_time

SERVICE_JOBS: Final = "$service"
"""Jobs under which Prometheus scrapes the daemons, which a site chooses; a variable lists them."""
GPU_ROWS: Final = (device.FB_USED, device.GPU_UTIL)
"""A healthy GPU has one of these at least: unified memory is no frame buffer, and MIG mode has no utilisation."""
LOOK_BACK: Final = "1h"
"""Time within which an event finds the count before it: an exporter may have been away for a while."""

NOW: Final = "[$__rate_interval]"
"""The window that Grafana finds right for the panel."""
_PROGRAM: Final = "UUID, GPU_I_ID, program, rank, source"
"""Labels of a program on a GPU; host and index of the GPU follow from its UUID."""

_VARIABLES: Final = {"Hostname": "hostname", "gpu": "gpu", "program": "program", "rank": "rank", "kernel": "kernel"}
_OWNER: Final = "hpc_job"
_OPTIONAL_WITH: Final = "metric"
_MAY_BE_ABSENT: Final = frozenset({"rank"})
"""Labels that many series lack: a program without ranks is shown whichever rank is chosen."""


def name(metric: Metric, suffix: str = "") -> str:
    """The metric's Prometheus name, with a histogram's `_bucket`, `_sum` or `_count` where asked."""
    return f"{metric.prometheus_name}{suffix}"


def series(metric: Metric, suffix: str = "", *, extra: Collection[str] = (), free: Collection[str] = ()) -> str:
    """A selector for a dashboard: the dashboard's variables applied to every label that the metric has.

    A forecast's subject may be a GPU, without a program or a kernel, so there an absent label matches too. A daemon's
    own metrics are selected by the jobs that Prometheus scrapes the daemons under.

    Args:
        metric: A row of the catalogue.
        suffix: `_bucket`, `_sum` or `_count` of a histogram.
        extra: Further matchers, such as `kernel!="other"`.
        free: Labels that the variables must not narrow.
    """
    if not metric.otlp_name:
        return _selector(name(metric, suffix), [f'job=~"{SERVICE_JOBS}"', *extra])
    absent_too = {"program", "kernel"} if _OPTIONAL_WITH in metric.labels else set()
    matchers = ['job=~"$job"']
    for label, variable in _VARIABLES.items():
        if label in metric.labels and label not in free:
            optional = "|" if label in absent_too | _MAY_BE_ABSENT else ""
            matchers.append(f'{label}=~"${variable}{optional}"')
    if _OWNER in metric.labels or {*DEVICE_LABELS} <= {*metric.labels}:
        matchers.append(f'{_OWNER}=~"${_OWNER}"')
    return _selector(name(metric, suffix), [*matchers, *extra])


def measured() -> str:
    """The GPUs that are measured now, by any of `GPU_ROWS`."""
    return f"({' or '.join(map(name, GPU_ROWS))})"


def measured_within(window: str, matchers: str = "") -> str:
    """The GPUs that were measured within a window.

    Args:
        window: Such as `1h`.
        matchers: Of labels, without braces; none by default.
    """
    where = f"{{{matchers}}}" if matchers else ""
    return f"({' or '.join(f'present_over_time({name(row)}{where}[{window}])' for row in GPU_ROWS)})"


def measured_here(*, free: Collection[str] = ()) -> str:
    """The GPUs that are measured now, with the dashboard's variables applied as by `series`."""
    return " or ".join(series(row, free=free) for row in GPU_ROWS)


def rate(selector: str) -> str:
    """The rate of a counter over the window that Grafana finds right for the panel."""
    return f"rate({selector}{NOW})"


def increase(selector: str) -> str:
    """The increase of a counter over the window that Grafana finds right for the panel."""
    return f"increase({selector}{NOW})"


def seen_rate(
    metric: Metric, suffix: str = "", *, extra: Collection[str] = (), free: Collection[str] = (), over: str = NOW
) -> str:
    """The rate of a metric of `wire.catalogue.windows` per second of wall time, for each series.

    Args:
        metric: A row of `WINDOWED`.
        suffix: As in `series`.
        extra: As in `series`.
        free: As in `series`.
        over: Window, with a modifier such as ` @ end()`.
    """
    selector = series(metric, suffix, extra=extra, free=free)
    return f"rate({selector}{over}) / {_measured_share(metric, suffix, free, over)}"


def seen_increase(metric: Metric, *, over: str) -> str:
    """The increase of a metric of `wire.catalogue.windows` in wall time, for each series; `over` is the window."""
    return f"increase({series(metric)}{over}) / {_measured_share(metric, '', (), over)}"


def _measured_share(metric: Metric, suffix: str, free: Collection[str], over: str) -> str:
    """The share of time in which the metric was measured, as the divisor of each series of a program.

    No value where nothing was measured. 1 for programs that have the metric and do not count their measured time, such
    as those of other producers.
    """
    chosen = ['job=~"$job"', *([] if "program" in free else [f'program=~"${_VARIABLES["program"]}"'])]
    measured, running = (
        f"rate({_selector(name(row), chosen)}{over})" for row in (measured_time(metric), kernel.PROBE_RUNNING)
    )
    others = f"group by ({_PROGRAM}) ({_selector(name(metric, suffix), chosen)}{over.partition(']')[2]})"
    shares = f"max by ({_PROGRAM}) ({measured} / ({running} > 0)) or {others}"
    return f"on ({_PROGRAM}) group_left () (({shares}) > 0)"


def risen(selector: str, *, of: str, by: str, window: str) -> str:
    """The increase of a device's counter within the window, also where it changed its labels in between.

    An error ends the program that it hits. The next sample may then lack the program's job or pod: it is the first one
    of another series, which `increase` does not compare with the sample before.

    Args:
        selector: The counter.
        of: Labels of one counter of one producer; others can change.
        by: Labels of the result.
        window: Range of the events.
    """
    one = f"{of}, GPU_I_ID, source, job, instance"
    least = f"min by ({one}) (min_over_time({selector}[{window}]))"
    relabelled = f"max by ({by}) ({selector} - on ({one}) group_left () {least}) > 0"
    return f"max by ({by}) (increase({selector}[{window}])) > 0 or {relabelled}"


def happened(
    selector: str,
    *,
    of: str = "",
    by: str = "",
    window: str = "$__rate_interval",
    known: str = "1h",
    relabelled: str = "",
) -> str:
    """The number of rare events within the window; no series without an event.

    The first sample of a counter that is created by its first event is 1, so `increase` does not count that event. A
    counter with a sample within `known` before the window is no new one: scrapes that failed create no event.

    Args:
        selector: The counter.
        of: Labels of one counter, where others can change: a GPU's counts go on when another pod gets it, and it has
            a series for each of the pods that share it.
        by: With `of`, labels of the result; those of `of` by default.
        window: Range of the events.
        known: Range before it.
        relabelled: With `of`, the same for samples with other labels; `known` by default. After a longer absence a
            counter with other labels is a new one: a reboot lets it begin again.
    """
    before = f"present_over_time({selector}[{known}] offset {window})"
    if not of:
        return f"increase({selector}[{window}]) > 0 or ({selector} > 0 unless {before})"
    # Where all of them were higher, the counter has begun again.
    least = f"min by ({of}) (last_over_time({selector}[{relabelled or known}] offset {window}))"
    same = f" unless {before}" if relabelled else ""
    new = f"max by ({by or of}) ({selector} > 0{same} unless {selector} >= on ({of}) group_left () {least})"
    return f"({risen(selector, of=of, by=by or of, window=window)} or {new})"


def marked(selector: str, *, of: str = "", step: str = "$__interval") -> str:
    """The number of events of a counter since the step before: an event is one mark, in one step of the graph.

    Args:
        selector: The counter.
        of: Labels of one counter, where others can change; see `happened`.
        step: Between two points of the graph.
    """
    now, before = selector, f"last_over_time({selector}[{LOOK_BACK}] offset {step})"
    if of:
        now, before = f"max by ({of}) ({now})", f"max by ({of}) ({before})"
    return f"({now} - ({before} or 0 * {now})) > 0"


def unspooled(expr: str, spool: str, window: str) -> str:
    """Failed messages of daemons without a spool, which sends a failed message again and counts lost ones."""
    return f"{expr} unless on (job, instance) present_over_time({spool}[{window}])"


def ranked(expr: str) -> str:
    """The label `rank` with the word before it, so that a legend does not end in it where a program has no ranks."""
    return f'label_replace({expr}, "rank", "rank $1", "rank", "(.+)")'


def share(part: str, *, of: str, by: str) -> str:
    """Each group's share of a whole: `sum by (by) (part)` divided by the sum of `of`."""
    return f"sum by ({by}) ({part}) / scalar(sum({of}))"


def _selector(metric_name: str, matchers: Collection[str]) -> str:
    return f"{metric_name}{{{', '.join(matchers)}}}" if matchers else metric_name
