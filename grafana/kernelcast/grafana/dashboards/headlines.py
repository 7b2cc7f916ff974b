"""Figures at the top of several pages: speed of programs, hottest kernel, soonest breach, open hints, alerts."""

from collections.abc import Collection
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import crossing, liveness, words
from kernelcast.grafana.dashboards.frame import ALERT_SUBJECT, OWN_ALERTS
from kernelcast.grafana.dashboards.programs import busy
from kernelcast.grafana.dashboards.programs.hints import open_since
from kernelcast.grafana.model import label_links
from kernelcast.grafana.model.panels import ROOMY, Axis, EmptyText, PanelText, Placed, stat
from kernelcast.grafana.model.targets import Query
from kernelcast.grafana.rules.hours import UTILIZATION
from kernelcast.grafana.rules.standing import HOLDER
from kernelcast.wire import verdict
from kernelcast.wire.catalogue import kernel, predictor
from kernelcast.wire.catalogue.model import Metric
from kernelcast.wire.kernels import COLLECTIVE

_WITHOUT_PARAMETERS: Final = r"((?:\\(anonymous namespace\\)|[^<(#])+).*"
"""A kernel's name up to its template arguments, parameters or hash; backslashes doubled for PromQL's string."""
_LOADERS: Final = "waits for data, raise num_workers"
_SOON_SECONDS: Final = 3600
"""Time to a breach below which it is red."""


def steps() -> Placed:
    """Steps a second of the programs that report them."""
    text = PanelText(
        "Steps a second",
        "Steps that a rank ends with kernelcast.probe.step(), on average over the ranks of a program; of the three "
        "programs with the most.",
        if_empty=EmptyText("none reported", liveness.PROGRAMS),
    )
    return _rate_of_programs(text, kernel.STEPS, over_ranks="avg")


def items() -> Placed:
    """Items a second of the programs that report them."""
    text = PanelText(
        "Items a second",
        "Units of work, such as samples or tokens, that programs give with step(items=), of the three with the most.",
        if_empty=EmptyText("none reported", liveness.PROGRAMS),
    )
    return _rate_of_programs(text, kernel.ITEMS, over_ranks="sum")


def _rate_of_programs(text: PanelText, metric: Metric, *, over_ranks: str) -> Placed:
    query = Query(f"topk(3, {over_ranks} by (program) ({promql.rate(promql.series(metric))}))", "{{program}}")
    return stat(text, [query], Axis("short", low=0), named=True, width=6, height=3)


def peak() -> Placed:
    """Share of the peak of its GPUs that each program uses at least."""
    text = PanelText(
        "Use of the GPUs' peak, at least",
        "Operations of the program's steps over the dense bf16 peak of its GPUs (MFU), of the three programs that use "
        "most; from step(flops=). Its GPUs do more: what the program does not count is not in it. Needs the recording "
        "rules.",
        if_empty=EmptyText("not given", liveness.PROGRAMS),
    )
    query = Query(f'topk(3, max by (program) ({UTILIZATION}{{precision="bf16", program=~"$program"}}))', "{{program}}")
    return stat(text, [query], Axis("percentunit", low=0), named=True, width=6, height=3)


def standing() -> Placed:
    """Programs that stand still, and in what."""
    text = PanelText(
        "Standing still",
        "Programs a rank of which has made no progress for longer than its limit, the phase or state that it is in, "
        "and for how long; with the recording rules the rank that the others wait for alone.",
        if_empty=EmptyText("none", liveness.PROGRAMS),
        runbooks=("KernelcastJobStandsStill", "KernelcastJobStandsStillInOnePhase"),
    )
    every = f"max by (program, state) ({promql.series(kernel.STANDING)}) > 0"
    culprit = f'max by (program, state, rank, Hostname) ({HOLDER}{{job=~"$job", program=~"$program"}})'
    named = f'label_replace({culprit}, "who", ", rank $1", "rank", "(.+)")'
    still = f"topk(3, {named} or ({every}) unless on (program) {culprit})"
    axis = Axis("s", low=0, decimals=0, thresholds=((None, "red"),))
    return stat(text, [Query(still, "{{program}}{{who}}: {{state}}")], axis, named=True, width=6, height=3)


def hottest(*, width: int = 8, height: int = 3) -> Placed:
    """The kernel with the most work."""
    text = PanelText(
        "Hottest kernel",
        "The kernel with the most GPU time now, without its parameters, and its share of the GPU time of all kernels. "
        "Collectives are left out: their time is mostly a wait for other GPUs. Needs the recording rules.",
        links=tuple(label_links.of_labels(("program", "kernel"))),
        runbooks=("KernelcastKernelSlower",),
    )
    work = busy.of_kernels(f'kernel_class!="{COLLECTIVE}"')
    largest = f"topk(1, {promql.share(work, of=busy.of_programs(), by='program, kernel')})"
    expr = f'label_replace({largest}, "name", "$1", "kernel", "{_WITHOUT_PARAMETERS}")'
    axis = Axis("percentunit", low=0, high=1)
    return stat(text, [Query(expr, "{{name}}")], axis, named=True, width=width, height=height)


def breach(*, width: int = 8, height: int = 3, free: Collection[str] = ()) -> Placed:
    """The next predicted breach; on a page about programs that of the GPUs that they run on.

    Args:
        width: Columns of the grid; in a few, on a page about one GPU, only the metric is named.
        height: Rows of the grid.
        free: Labels that the page has no variables for.
    """
    text = PanelText(
        "Soonest breach",
        "The series that is expected to cross its threshold next, the cause, and the time after which half of the "
        "simulated paths have crossed it, which is not known while only an alert still predicts it. Once some have, "
        "the one that crossed first, and how long ago. The predictor learns for 18 blocks of five minutes first; a "
        "demo has shorter ones.",
        if_empty=EmptyText("none predicted", liveness.current(liveness.PREDICTIONS), liveness.LEARNING),
        runbooks=("KernelcastBreachImminent", "KernelcastDegradationPredicted"),
    )
    by = "Hostname, gpu, metric, cause"
    name = "{{metric}} ({{cause}}) on {{Hostname}} GPU {{gpu}}" if width >= ROOMY else "{{metric}}"
    among = "" if "program" in free else liveness.CHOSEN_PROGRAMS
    since = crossing.since(by, free=free, among=among)
    queries = [
        Query(f"bottomk(1, {crossing.soonest(by, free=free, among=among)}) unless on () {since}", name),
        Query(f"bottomk(1, {since})", f"{name}, crossed"),
    ]
    axis = Axis("s", low=0, thresholds=((None, "red"), (_SOON_SECONDS, "orange")), states=crossing.SOONEST)
    placed = stat(text, queries, axis, named=True, width=width, height=height)
    placed.panel.field_config["overrides"] = [crossing.SINCE]
    return words.renamed(placed)


def findings(*, width: int = 7, height: int = 3) -> Placed:
    """What the predictor has found about these programs."""
    text = PanelText(
        "Findings",
        "What is wrong, or soon will be, with these programs and their kernels: the probable cause, and for how long "
        "already. All of them, with value and limit, are on Fleet.",
        if_empty=EmptyText("none", liveness.PREDICTORS, liveness.LEARNING),
        runbooks=("KernelcastWorkSlower", "KernelcastDegradationPredicted"),
    )
    chosen = ('program=~"$program"', 'kernel=~"$kernel|"')
    since = f"min by (program, kernel, metric, cause, state) ({promql.series(predictor.FINDING_SINCE, extra=chosen)})"
    named = f'label_replace({since}, "name", "$1", "metric", "(.+)")'
    named = f'label_replace({named}, "name", "$1", "kernel", "{_WITHOUT_PARAMETERS}")'
    query = Query(f"topk(3, time() - {named})", "{{name}}: {{cause}}, {{state}}")
    axis = Axis("s", low=0, decimals=0, thresholds=((None, "orange"),))
    return stat(text, [query], axis, named=True, width=width, height=height)


def hints(*, width: int = 8, height: int = 3) -> Placed:
    """Tunables with open hints."""
    text = PanelText(
        "What to change",
        "Tunables with a hint that no program has kept or refused yet: the value proposed, the rule that gave it, and "
        "the time since then. The row of hints has those that were kept. And programs whose steps wait for data in "
        f"{verdict.LARGE * 100:g} % of the time or more. {words.LOADER}",
        if_empty=EmptyText("no hint", liveness.PREDICTORS),
    )
    phases, data = (
        f"sum by (program) ({promql.rate(promql.series(kernel.PHASE_SECONDS, extra=phase))})"
        for phase in ((), ('phase="data"',))
    )
    queries = [
        Query(f"topk(3, {open_since()})", "{{program}}: {{tunable}} → {{value}} ({{rule}})"),
        Query(f"topk(2, {data} / {phases} >= {verdict.LARGE:g})", f"{{{{program}}}} {_LOADERS}"),
    ]
    placed = stat(text, queries, Axis("s", low=0), named=True, width=width, height=height)
    placed.panel.field_config["overrides"] = [
        {
            "matcher": {"id": "byRegexp", "options": f"/{_LOADERS}$/"},
            "properties": [{"id": "unit", "value": "percentunit"}],
        }
    ]
    return placed


def alerts(*, width: int = 8, height: int = 3, everywhere: bool = True) -> Placed:
    """Number of alerts that fire.

    Args:
        width: Columns of the grid.
        height: Rows of the grid.
        everywhere: Whether alerts without a node count, too.
    """
    node = "|" if everywhere else ""
    text = PanelText(
        "Alerts firing",
        "Alerts of kernelcast that fire now; one about many kernels of a program counts once. Without the heartbeat "
        "alert the rules are not loaded.",
    )
    alerts = f'ALERTS{{alertstate="firing", {OWN_ALERTS}, Hostname=~"$hostname{node}"}}'
    firing = f"count(group by (alertname, {ALERT_SUBJECT}) ({alerts}))"
    none = '0 * count(ALERTS{alertstate="firing", alertname="Watchdog"})'
    axis = Axis("short", low=0, decimals=0, thresholds=((None, "green"), (1, "red")))
    return stat(text, [Query(f"{firing} or {none}")], axis, width=width, height=height)
