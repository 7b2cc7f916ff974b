"""The demo's screen: that of `kernelcast top`, with the demo's processes below it; `command` shows it."""

from rich.text import Text

from kernelcast.cli.demo.children import HEALTHY
from kernelcast.cli.demo.state import DemoState
from kernelcast.runtime.terminal import printable
from kernelcast.view.text import Screen

_BANNERS = {"nvml": "bold black on green", "simulate": "bold black on yellow"}


def render(state: DemoState, height: int | None = None) -> Screen:
    """The whole screen, within some lines."""
    banner = _BANNERS.get(state.source.kind, "bold white on blue")
    keys = Text("  ").join([state.controls.line(), Text(f"logs {state.workspace.directory}", style="dim")])
    return Screen(state.picture, state.controls.order, (_pipeline(state),), keys, height=height, banner=banner)


def _pipeline(state: DemoState) -> Text:
    """What runs, in a line; a process that does not comes first."""
    ended = {name: word for name, word in state.processes.items() if word not in HEALTHY}
    line = Text("demo  ", style="bold cyan")
    for name, word in ended.items():
        line.append(f"{name} {word}  ", style="bold red")
    line.append(f"{state.elapsed_seconds:.0f} s", style="")
    line.append(f", {len(state.processes) - len(ended)} of {len(state.processes)} processes run, broker {state.broker}")
    line.append(f", dead letters {state.dead_letters}", style="bold red" if state.dead_letters else "")
    if state.prometheus_launches is not None:
        line.append(f", Prometheus has {state.prometheus_launches:,.0f} launches")
    return line


def plain(state: DemoState) -> str:
    """One line of progress, for where there is no terminal."""
    bad = ", ".join(name for name, word in state.processes.items() if word not in HEALTHY)
    picture = state.picture
    firing = "not known" if picture.alerts is None else str(sum(one.number for one in picture.alert_groups))
    knows = picture.predictions or picture.no_prediction.startswith("nothing")
    predicted = str(len(picture.predictions)) if knows else "not known"
    hottest = next((one for one in picture.kernels if not one.collective), None)
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
