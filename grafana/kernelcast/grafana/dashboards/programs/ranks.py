"""Panels of the page `program` about its steps: phases, ranks, ranks that stand still, collectives."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards import liveness, serving, words
from kernelcast.grafana.model.dashboard import Row
from kernelcast.grafana.model.panels import Axis, EmptyText, LineStyle, PanelText, Placed, grey, time_series
from kernelcast.grafana.model.tables import Column, table
from kernelcast.grafana.model.targets import Query, column
from kernelcast.grafana.rules import hours
from kernelcast.grafana.rules.standing import HOLDER
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import nccl
from kernelcast.wire.catalogue.model import Metric

_LINES: Final = 8
"""Lines of a graph: as many as its legend shows without scrolling."""
_ROWS: Final = 50
"""Rows of the table of ranks."""
_RANK: Final = "Hostname, gpu, program, rank"
_NAMED: Final = "{{rank}} {{Hostname}} GPU {{gpu}} {{program}}"
"""What tells ranks of one program apart comes first: a narrow legend cuts the end."""
_NO_PHASES: Final = "no program reports its phases"
_OWN_WORK: Final = 'phase=~"data|forward|optimizer"'
"""Phases in which a rank waits for no other."""


def first_screen() -> tuple[Placed, ...]:
    """Phases of all ranks, and the ranks that work longest."""
    return (_phases(), _own_work())


def row() -> Row:
    """Who stands still, each rank's step, who shares its GPU, an item, the GPU, collectives."""
    steps = (_ranks(), serving.on_one_gpu('program=~"$program"'), _items(), _durations(), _gpu_phases())
    panels = (_still(), _ended(), *steps, _collectives())
    return Row("Steps, ranks and collectives", panels, collapsed=True)


def _rates(metric: Metric, *extra: str) -> str:
    return promql.rate(promql.series(metric, extra=extra))


def _phases() -> Placed:
    text = PanelText(
        "Phases of a step",
        "What the time of the programs' steps is spent on, over all ranks. Data: the program waits for its loader. "
        f"{words.LOADER} "
        "Backward includes the wait for other ranks. Other: work that no mark shows.",
    )
    rates = _rates(kernel.PHASE_SECONDS)
    query = Query(promql.share(rates, of=rates, by="phase"), "{{phase}}")
    none = liveness.nothing(_NO_PHASES, (query.expr,), liveness.PROGRAMS)
    style = LineStyle(stacked=True, overrides=(grey("other"),))
    return time_series(text, [query, none], Axis("percentunit", low=0, high=1), style, height=5)


def _own_work() -> Placed:
    text = PanelText(
        "Ranks by their own work",
        f"Share of time in data, forward and optimizer, where a rank waits for no other: the {_LINES} ranks with most. "
        "A line above the others is the rank that its job waits for.",
        runbooks=("KernelcastStraggler",),
    )
    own = f"topk({_LINES}, sum by ({_RANK}) ({_rates(kernel.PHASE_SECONDS, _OWN_WORK)}))"
    none = liveness.nothing(_NO_PHASES, (own,), liveness.PROGRAMS)
    return time_series(text, [Query(promql.ranked(own), _NAMED), none], Axis("percentunit", low=0), height=5)


def _still() -> Placed:
    text = PanelText(
        "Ranks that stand still now",
        "Ranks that have made no progress for longer than their limit, the phase or state that each is in, and the "
        "file with the stacks of its threads on its node. The rank that differs from the others holds up its job.",
        EmptyText("No rank stands still", liveness.PROGRAMS),
        runbooks=("KernelcastJobStandsStill", "KernelcastJobStandsStillInOnePhase"),
    )
    by = f"{_RANK}, state, stacks"
    chosen = 'job=~"$job", Hostname=~"$hostname", gpu=~"$gpu", program=~"$program", rank=~"$rank|"'
    still = f"max by ({by}) ({promql.series(kernel.STANDING)}) > 0"
    return table(
        text,
        [column(still), column(f"0 * max by ({by}) ({HOLDER}{{{chosen}}}) + 1")],
        (
            Column("program", "Program", width=110),
            Column("rank", "Rank", width=55),
            Column("state", "State", width=80),
            Column("Value #A", "For", "s", width=70, decimals=0),
            Column("Value #B", "Its job", "none", width=90, words={"1": ("held up by it", "red")}),
            Column("Hostname", "Node", width=84),
            Column("gpu", "GPU", width=50),
            Column("stacks", "Stacks"),
        ),
        sort="For",
        width=16,
        height=6,
    )


def _ended() -> Placed:
    text = PanelText(
        "Processes that ended without a word",
        "Killed or crashed, one mark for each.",
        EmptyText("none", liveness.PROGRAMS),
        runbooks=("KernelcastRankEnded",),
    )
    lost = promql.marked(promql.series(kernel.LOST_PROCESSES))
    query = Query(f"sum by (program) ({lost})", "{{program}}")
    return time_series(text, [query], Axis("short", low=0, decimals=0), LineStyle(bars=True), width=8, height=6)


def _ranks() -> Placed:
    text = PanelText(
        "Ranks",
        f"Steps and phases of each rank, as shares of its time, the {_ROWS} with the longest wait for data. A rank "
        "that is long in data, forward or optimizer makes its peers long in backward.",
        EmptyText(_NO_PHASES, liveness.PROGRAMS),
        runbooks=("KernelcastStraggler",),
    )
    data, forward, backward, optimizer = (
        f"sum by ({_RANK}) ({_rates(kernel.PHASE_SECONDS, matcher)})"
        for matcher in (f'phase="{phase}"' for phase in ("data", "forward", "backward", "optimizer"))
    )
    steps = f"sum by ({_RANK}) ({_rates(kernel.STEPS)})"
    return table(
        text,
        [column(f"topk({_ROWS}, {data})"), *map(column, (forward, backward, optimizer, steps))],
        (
            Column("program", "Program", least=110),
            Column("rank", "Rank", width=55),
            Column("Value #A", "Data", "percentunit", width=70, decimals=0),
            Column("Value #B", "Forward", "percentunit", width=80, decimals=0),
            Column("Value #C", "Backward", "percentunit", width=80, decimals=0),
            Column("Value #D", "Optimizer", "percentunit", width=80, decimals=0),
            Column("Value #E", "Steps/s", "short", width=70),
            Column("Hostname", "Node", width=84),
            Column("gpu", "GPU", width=50),
        ),
        sort="Data",
        width=24,
        height=7,
    )


def _items() -> Placed:
    text = PanelText(
        "An item by kind of GPU and precision",
        "GPU time and energy of an item on each model of GPU and in each precision in which a program ran in this time "
        "range, over all its ranks. On a GPU that several programs share, their energy is in it.",
        EmptyText("no program gave its items in this time range", liveness.PROGRAMS),
    )
    by = "program, modelName, precision"
    values = (
        f'max by ({by}) (avg_over_time({recording}{{program=~"$program"}}[$__range]))'
        for recording in (hours.GPU_SECONDS_PER_ITEM, hours.JOULES_PER_ITEM)
    )
    return table(
        text,
        [column(value) for value in values],
        (
            Column("program", "Program", least=110),
            Column("modelName", "GPU model", width=160),
            Column("precision", "Precision", width=90),
            Column("Value #A", "GPU time", "s", width=90),
            Column("Value #B", "Energy", "joule", width=90),
        ),
        sort="GPU time",
        width=24,
        height=5,
    )


def _durations() -> Placed:
    text = PanelText(
        "Duration of a step",
        "Median and 99th percentile of all ranks, by program: a p99 far above the median is a checkpoint, an "
        "evaluation, or a rank that is sometimes late.",
    )
    buckets = f"sum by (program, le) ({promql.rate(promql.series(kernel.STEP_DURATION, '_bucket'))})"
    queries = [
        Query(f"histogram_quantile({share}, {buckets})", f"{{{{program}}}} {words}")
        for share, words in ((0.5, "median"), (0.99, "p99"))
    ]
    durations = (query.expr for query in queries)
    queries.append(liveness.nothing("no program reports durations of its steps", durations, liveness.PROGRAMS))
    return time_series(text, queries, Axis("s", low=0), width=8, height=7)


def _gpu_phases() -> Placed:
    text = PanelText(
        "A step as the GPU comes to it",
        "Time of a step by phase on PyTorch's current stream: data is the time in which the GPU lacks batches.",
    )
    spent, steps = (_rates(row) for row in (kernel.GPU_PHASE_SECONDS, kernel.GPU_PHASE_STEPS))
    query = Query(f"sum by (phase) ({spent}) / scalar(sum({steps}))", "{{phase}}")
    none = liveness.nothing("no program times its phases on the GPU", (query.expr,), liveness.PROGRAMS)
    return time_series(text, [query, none], Axis("s", low=0), LineStyle(stacked=True), width=8, height=7)


def _collectives() -> Placed:
    text = PanelText(
        "Bus bandwidth of collectives",
        f"From the files of NCCL Inspector, the {_LINES} slowest: compare with the speed of the links between the "
        "GPUs; a communicator that is slower than others of its size has a slow link or rank.",
    )
    slowest = f"bottomk({_LINES}, {promql.series(nccl.BUS_BANDWIDTH)})"
    queries = [
        Query(slowest, "{{operation}} {{message_size}} {{Hostname}} GPU {{gpu}}"),
        liveness.nothing("NCCL Inspector gives no files", (slowest,)),
    ]
    return time_series(text, queries, Axis("Bps", low=0), width=8, height=7)
