"""The demo's screen: that of `kernelcast top`, with the demo's processes and addresses below it; `command` shows it."""

from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text

from kernelcast.cli.demo.children import HEALTHY
from kernelcast.cli.demo.state import DemoState
from kernelcast.cli.top import screen
from kernelcast.runtime.terminal import printable

_STYLES = {"nvml": "bold black on green", "simulate": "bold black on yellow"}
RECENT = 3
"""Hints on the screen, the newest."""


def render(state: DemoState) -> RenderableType:
    """The whole screen."""
    view = state.view
    view.title = state.source.banner
    view.source_style = _STYLES.get(state.source.kind, "bold white on blue")
    return screen.render(view, most_kernels=10, below=(_pipeline(state),))


def _pipeline(state: DemoState) -> RenderableType:
    processes = Text("  ").join(
        Text(f"{name} {word}", style="green" if word in HEALTHY else "bold red")
        for name, word in state.processes.items()
    )
    counts = Text(f"{state.elapsed_seconds:.0f} s, broker: {state.broker}, dead letters: {state.dead_letters}")
    if not state.reachable:
        counts.append("; the bridge does not answer yet", style="bold red")
    if state.prometheus_launches is not None:
        counts.append(f"; launches in Prometheus: {state.prometheus_launches:,.0f}")
    hints = [_hint_line(event["data"]) for event in state.hints[-RECENT:]]
    urls = [Text(f"{name} {url}", style="dim", no_wrap=True) for name, url in state.workspace.endpoints.urls().items()]
    pages = Text(f"dashboards {state.workspace.endpoints.pages}", style="bold", no_wrap=True)
    return Panel(
        Group(processes, counts, *hints, pages, Columns(urls, padding=(0, 3))), title="pipeline", title_align="left"
    )


def _hint_line(hint: dict[str, Any]) -> Text:
    rule = hint["evidence"][0]["rule"] if hint.get("evidence") else ""
    return Text(printable(f"hint: {hint['program']} {hint['tunable']} {hint['requires']} → {hint['value']} ({rule})"))


def plain(state: DemoState) -> str:
    """One line of progress, for where there is no terminal."""
    bad = ", ".join(name for name, word in state.processes.items() if word not in HEALTHY)
    view = state.view
    firing = "not known" if view.alerts.firing is None else str(len(view.alerts.firing))
    predicted = str(len(view.predictions())) if view.knows_predictions else "not known"
    hottest = next((one for one in view.kernels() if not one.collective), None)
    return (
        f"{state.elapsed_seconds:6.1f} s  launches {state.snapshot.launches:,.0f}  "
        f"kernels {len(state.snapshot.kernels)}  gpus {len(state.snapshot.gpus)}  "
        f"forecasts {state.snapshot.forecasts}  predicted {predicted}  "
        f"hints {len(state.hints)}  outcomes {len(state.outcomes)}  alerts that fire {firing}"
        f"{f'  hottest {_short(hottest.name)}' if hottest is not None else ''}"
        f"{f'  NOT RUNNING: {bad}' if bad else ''}"
    )


def _short(kernel: str) -> str:
    """A kernel's name without its parameters."""
    return printable(kernel.partition("(")[0].partition("<")[0][:40])
