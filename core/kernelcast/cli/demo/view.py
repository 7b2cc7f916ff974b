"""The live terminal view."""

from collections.abc import Sequence
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kernelcast.cli.demo.children import HEALTHY
from kernelcast.cli.demo.snapshot import KernelStats
from kernelcast.cli.demo.state import DemoState
from kernelcast.wire.catalogue.devices import device

_STYLES = {"nvml": "bold black on green", "simulate": "bold black on yellow"}
_GPU_COLUMNS = (
    ("util %", device.GPU_UTIL),
    ("temp °C", device.GPU_TEMP),
    ("power W", device.POWER_USAGE),
    ("SM MHz", device.SM_CLOCK),
    ("used MiB", device.FB_USED),
)
HOTTEST = 10
RECENT = 5


def render(state: DemoState) -> RenderableType:
    """The whole screen."""
    banner = Text(f" {state.source.banner} ", style=_STYLES.get(state.source.kind, "bold white on blue"))
    clock = Text(f"{state.elapsed_seconds:6.0f} s   broker: {state.broker}", style="dim")
    lower = Table.grid(expand=True, padding=(0, 1))
    lower.add_column(ratio=1)
    lower.add_column(ratio=1)
    lower.add_row(_predictions(state), _hints(state))
    upper = [_gpus(state)] if state.snapshot.gpus else []
    return Group(banner, clock, *upper, _kernels(state), lower, _health(state))


def _gpus(state: DemoState) -> RenderableType:
    table = Table(expand=True, box=None, header_style="bold")
    table.add_column("GPU", no_wrap=True)
    for title, _ in _GPU_COLUMNS:
        table.add_column(title, justify="right")
    for (host, index), values in sorted(state.snapshot.gpus.items())[:8]:
        cells = [_number(values.get(row.prometheus_name)) for _, row in _GPU_COLUMNS]
        table.add_row(f"{host} / {index}", *cells)
    return Panel(table, title="GPUs", title_align="left")


def _kernels(state: DemoState) -> RenderableType:
    table = Table(expand=True, box=None, header_style="bold")
    table.add_column("kernel", no_wrap=True, overflow="ellipsis", ratio=1)
    for title in ("share", "launches", "mean", "p50", "p99"):
        table.add_column(title, justify="right", no_wrap=True)
    total = state.snapshot.kernel_seconds
    for name, stats in state.snapshot.hottest(HOTTEST):
        table.add_row(name, f"{stats.seconds / total:.1%}" if total else "", f"{stats.launches:,.0f}", *_times(stats))
    title = f"hottest kernels: {state.snapshot.launches:,.0f} launches, {state.launches_per_second:,.0f}/s"
    return Panel(
        table if state.snapshot.kernels else Text("no kernels yet", style="dim"), title=title, title_align="left"
    )


def _times(stats: KernelStats) -> tuple[str, str, str]:
    mean = stats.seconds / stats.count if stats.count else None
    return _duration(mean), _duration(stats.quantile_seconds(0.5)), _duration(stats.quantile_seconds(0.99))


def _predictions(state: DemoState) -> RenderableType:
    table = Table(expand=True, box=None, header_style="bold")
    table.add_column("subject", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("cause")
    table.add_column("within", justify="right")
    table.add_column("P", justify="right")
    for labels, probability in sorted(state.snapshot.degradations, key=lambda item: -item[1])[:RECENT]:
        subject = labels.get("kernel") or f"{labels.get('Hostname', '')}/{labels.get('gpu', '')}"
        table.add_row(
            f"{subject} {labels.get('metric', '')}",
            labels.get("cause", ""),
            labels.get("horizon", ""),
            f"{probability:.0%}",
        )
    title = f"predicted degradation; {state.snapshot.forecasts} forecast series"
    calm = Text("nothing predicted", style="dim")
    return Panel(table if state.snapshot.degradations else calm, title=title, title_align="left")


def _hints(state: DemoState) -> RenderableType:
    lines = [_hint_line(event["data"]) for event in state.hints[-RECENT:]]
    lines += [_outcome_line(event["data"]) for event in state.outcomes[-RECENT:]]
    body = Text("\n").join(lines) if lines else Text("none yet", style="dim")
    return Panel(body, title="hints and outcomes", title_align="left")


def _hint_line(hint: dict[str, Any]) -> Text:
    rule = hint["evidence"][0]["rule"] if hint.get("evidence") else ""
    return Text(f"hint: {hint['program']} {hint['tunable']} {hint['requires']} → {hint['value']} ({rule})")


def _outcome_line(outcome: dict[str, Any]) -> Text:
    style = {"kept": "green", "rolled_back": "red", "rejected": "red"}.get(outcome["state"], "")
    ratio = outcome.get("measured_ratio")
    measured = f", kernel time x{ratio:.2f}" if ratio is not None else ""
    value = f" = {outcome['value']}" if outcome["value"] else ""
    return Text(f"{outcome['state']}: {outcome['tunable']}{value}{measured}", style=style)


def _health(state: DemoState) -> RenderableType:
    processes = Text("  ").join(
        Text(f"{name} {word}", style="green" if word in HEALTHY else "bold red")
        for name, word in state.processes.items()
    )
    bridge = "bridge answers" if state.reachable else "bridge does not answer yet"
    firing = sorted({event["data"]["labels"].get("alertname", "?") for event in state.alerts})
    counts = Text(f"{bridge}; alerts on Kafka: {_names(firing) or 'none'}; dead letters: {state.dead_letters}")
    if state.prometheus_launches is not None:
        counts.append(f"; launches in Prometheus: {state.prometheus_launches:,.0f}")
    urls = [Text(f"{name} {url}", style="dim", no_wrap=True) for name, url in state.workspace.endpoints.urls().items()]
    return Panel(Group(processes, counts, Columns(urls, padding=(0, 3))), title="pipeline", title_align="left")


def plain(state: DemoState) -> str:
    """One line of progress, for where there is no terminal."""
    bad = _names([name for name, word in state.processes.items() if word not in HEALTHY])
    return (
        f"{state.elapsed_seconds:6.1f} s  launches {state.snapshot.launches:,.0f}  "
        f"kernels {len(state.snapshot.kernels)}  gpus {len(state.snapshot.gpus)}  "
        f"forecasts {state.snapshot.forecasts}  degradations {len(state.snapshot.degradations)}  "
        f"hints {len(state.hints)}  outcomes {len(state.outcomes)}  alerts {len(state.alerts)}"
        f"{f'  NOT RUNNING: {bad}' if bad else ''}"
    )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"  # noqa: RUF001  a dash for an absent value


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"  # noqa: RUF001  a dash for an absent value
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
