"""The state of each GPU as one number, the worst that any metric shows, and the table of GPUs by that state.

The pages of fleet and GPU use it, also to choose the GPU in the worst state when a page opens.
"""

from collections.abc import Collection
from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import crossing, liveness
from kernelcast.grafana.dashboards.frame import ANY_NODE, OWN_ALERTS, OWNER
from kernelcast.grafana.dashboards.hardware.devices import held_back, held_back_expr, held_back_in_short
from kernelcast.grafana.model.panels import PanelText, Placed, States
from kernelcast.grafana.model.tables import Column, first_rows, table
from kernelcast.grafana.model.targets import column
from kernelcast.grafana.model.variables import RankedVariable
from kernelcast.wire.catalogue.devices import device, gpu
from kernelcast.wire.catalogue.model import Metric

Labels = Collection[str]
_ROWS: Final = 50
"""Rows of the table."""
_BY: Final = "Hostname, gpu"
"""Labels of one GPU."""
PROGRAMS: Final = ("program", "rank", "kernel")
"""Labels that are not narrowed on pages about hardware."""
STATES: Final[States] = {
    "9": ("not known", "text"),
    "8": ("does not answer", "red"),
    "7": ("needs recovery", "red"),
    "6": ("clocks held back", "orange"),
    "5": ("limit crossed", "red"),
    "4": ("errors", "orange"),
    "3": ("breach predicted", "orange"),
    "2": ("idle but allocated", "yellow"),
    "1": ("alert fires", "orange"),
    "0": ("no fault seen", "green"),
}


def each(metric: Metric, *, free: Labels = ()) -> str:
    """A row of each GPU, once.

    Args:
        metric: The row of the catalogue.
        free: Labels that the variables must not narrow, here and below.
    """
    return f"max by ({_BY}) ({promql.series(metric, free=free)})"


def errors(free: Labels = ()) -> str:
    """XIDs and uncorrectable memory errors in the time range, of each GPU that is measured now."""
    # Both counters begin at 0: an XID's one interval before its first event.
    counters = (promql.series(row, free=free) for row in (gpu.XID_ERRORS, device.ECC_DBE_VOLATILE))
    parts = (f"sum by ({_BY}) (max by ({_BY}, xid) (increase({one}[$__range])) > 0)" for one in counters)
    return f"({' or '.join(parts)}) and on ({_BY}) {each(gpu.GPU_UP, free=free)}"


def _last_error() -> str:
    """The XID that each GPU reported last in the time range, else an uncorrectable memory error, in the label `xid`."""
    happened = f"increase({promql.series(gpu.XID_ERRORS)}[$__range]) > 0"
    last = f"max by ({_BY}, xid) ({promql.series(gpu.XID_LAST)}) and on ({_BY}, xid) ({happened})"
    numbered = f'label_replace(topk by ({_BY}) (1, {last}), "xid", "XID $1", "xid", "(.+)")'
    memory = f"max by ({_BY}) (increase({promql.series(device.ECC_DBE_VOLATILE)}[$__range]) > 0)"
    last_error = f'{numbered} or on ({_BY}) label_replace({memory}, "xid", "memory", "", "")'
    return f"({last_error}) and on ({_BY}) {each(gpu.GPU_UP)}"


def _used_by() -> str:
    """A program that runs on each GPU, or else a pod or a job that has it, in the label `used_by`."""

    def owned(label: str) -> str:
        rows = (device.FB_USED, device.GPU_UTIL, gpu.OWNER)
        return " or ".join(promql.series(row, extra=(f'{label}!=""',)) for row in rows)

    users = {"program": liveness.PROGRAMS, "pod": owned("pod"), "hpc_job": owned("hpc_job")}
    named = (
        f'label_join(topk by ({_BY}) (1, group by ({_BY}, {label}) ({user})), "used_by", "", "{label}")'
        for label, user in users.items()
    )
    used = f"group by ({_BY}, used_by) ({f' or on ({_BY}) '.join(named)})"
    return f"{used} and on ({_BY}) ({each(gpu.GPU_UP)} or {each(device.FB_USED)})"


def idle_allocated(free: Labels = ()) -> str:
    """Utilisation of GPUs that a pod or a job has now and that no kernel used lately."""
    busiest = f"max by ({_BY}) (max_over_time({promql.series(device.GPU_UTIL, free=free)}[15m]))"
    held = ('pod!=""', 'hpc_job!=""')
    owned = [promql.series(row, extra=(one,), free=free) for row in (device.GPU_UTIL, gpu.OWNER) for one in held]
    return f"({busiest} < 1) and on ({_BY}) ({' or '.join(owned)})"


def _alerts(free: Labels = ()) -> str:
    """GPUs that an alert is about which fires now, for faults that no other state shows, such as a narrow PCIe link."""
    chosen = "" if free else ', Hostname=~"$hostname", gpu=~"$gpu"'
    firing = f'group by ({_BY}) (ALERTS{{alertstate="firing", {OWN_ALERTS}{chosen}}})'
    return f"{firing} and on ({_BY}) {each(gpu.GPU_UP, free=free)}"


def state(free: Labels = ()) -> str:
    """The worst state of each GPU: the first that holds."""
    anywhere = (*PROGRAMS, *free)
    conditions = (
        f"({each(gpu.GPU_UP, free=free)} == 0)",
        f"({each(device.RECOVERY_ACTION, free=free)} > 0)",
        f"({held_back(_BY, free)})",
        f"({crossing.since(_BY, free=anywhere)})",
        f"({errors(free)})",
        f"({crossing.left(_BY, free=anywhere)})",
        f"({idle_allocated(free)})",
        f"({_alerts(free)})",
        f"({each(device.FB_USED, free=free)})",
    )
    first = len(conditions) - 1
    return "\nor ".join(f"0 * {condition} + {first - place}" for place, condition in enumerate(conditions))


def worst_node() -> RankedVariable:
    """The node; the one whose GPU is in the worst state is chosen when the page opens."""
    return RankedVariable("hostname", "Node", _worst("Hostname", ANY_NODE, OWNER), "Hostname", several=True)


def _worst(label: str, measured: str, where: str) -> str:
    """The worst state by a label, then what has no state; where nothing is measured now, what was in the last hour."""
    here = f'{{__name__=~"{measured}|{promql.name(gpu.GPU_UP)}", {where}}}'
    known = f"max by ({label}) (({state(free=('Hostname', 'gpu'))}) and on ({_BY}) {here})"
    lately = f"-2 * group by ({label}) ({promql.measured_within('1h', where)})"
    return f"{known} or -1 * group by ({label}) ({here}) or on () {lately}"


def worst_first(*, width: int = 14, height: int = 6) -> Placed:
    """The GPUs with the worst state first."""
    text = PanelText(
        "Worst first",
        f"The {_ROWS} GPUs in the worst state; it is not known while Kafka does not answer the bridge. Temperature is "
        "of the limit at which the driver slows the GPU down; "
        "clocks are held back for the reasons given (the page of a GPU has them in full); error is the last XID of "
        "this time range, or an uncorrectable memory error; used by names a program, or else a pod or a job; a breach "
        "is when half of the simulated paths will have crossed a limit, or how long ago it was crossed.",
        runbooks=("KernelcastGpuDown", "KernelcastGpuThrottling"),
    )
    heat = f"{each(device.GPU_TEMP)} / on ({_BY}) ({each(device.SLOWDOWN_TEMP)} > 0)"
    columns = (
        Column("Hostname", "Node", least=84),
        Column("gpu", "GPU", width=50),
        Column("Value #A", "State", "none", width=128, words=STATES),
        Column("Value #F", "Breach", crossing.FROM_NOW, width=107),
        Column("Value #B", "Temp. of limit", "percentunit", bar=True, width=104, alarm=0.95),
        Column("Value #C", "Clocks", "none", width=130, words=held_back_in_short()),
        Column("xid", "Error", width=60),
        Column("used_by", "Used by", least=69),
    )
    breach = crossing.moment(_BY, free=PROGRAMS)
    not_known = f"0 * ({each(gpu.GPU_UP)} and on () ({liveness.KAFKA_IS_OUT})) + 9"
    exprs = (f"{not_known}\nor {state()}", heat, held_back_expr(_BY), _last_error(), _used_by(), breach)
    return first_rows(table(text, list(map(column, exprs)), columns, sort="State", width=width, height=height), _ROWS)
