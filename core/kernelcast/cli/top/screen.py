"""The screen of `kernelcast top` and of the demo, made of rich's tables from a `TopView`.

Only the thread that shows the screen calls this module.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kernelcast.cli.top.rates import KernelNow
from kernelcast.cli.top.view import TopView, counted
from kernelcast.runtime.terminal import printable
from kernelcast.wire.catalogue.devices import device, gpu

ABSENT: Final = "–"  # noqa: RUF001  a dash for an absent value
# Rows of each table; the rest is left out.
MAX_GPUS: Final = 16
MAX_HINTS: Final = 5
MAX_PREDICTIONS: Final = 10
MAX_ALERTS: Final = 8
SLOWER_RATIO: Final = 1.1
"""Mean duration of a kernel against before, from which it is yellow."""
MUCH_SLOWER_RATIO: Final = 1.5
"""The same, from which it is red."""
_HINT_STATES: Final = {"trial": "on trial", "approval": "waits for approval"}
"""Words for the states of a hint whose names do not say enough."""
WIDE: Final = 100
"""Columns of a terminal from which every figure is shown."""
_NARROW_FIGURES: Final = 4
"""Figures of a kernel that a narrower terminal shows."""
_MAX_NAME: Final = 30
"""Characters of a GPU's name that are shown in any case."""
_ALERT_PREFIX: Final = "Kernelcast"
"""All names of our alerts begin with it; it is not shown."""
_NEARLY_FULL_RATIO: Final = 0.9
"""Share of a GPU's memory from which it is yellow."""
_NEAR_DEGREES: Final = 5.0
"""Distance from the slowdown temperature from which a temperature is yellow."""


@dataclass(frozen=True, slots=True)
class TopScreen:
    """The whole screen, with fewer columns on a narrow terminal.

    Attributes:
        view: The state to draw.
        most_kernels: Maximum number of rows of the kernels' table.
        below: Further parts, between the tables and the line of keys.
    """

    view: TopView
    most_kernels: int = 12
    below: Sequence[RenderableType] = ()

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich to draw the screen in the width of the terminal."""
        yield _screen(self, options.max_width)


def render(view: TopView, *, most_kernels: int = 12, below: Sequence[RenderableType] = ()) -> RenderableType:
    """The whole screen; the parameters are the attributes of `TopScreen`."""
    return TopScreen(view, most_kernels, below)


def _screen(screen: TopScreen, width: int) -> RenderableType:
    view = screen.view
    lower = Table.grid(expand=True, padding=(0, 1))
    lower.add_column(ratio=1)
    lower.add_column(ratio=1)
    lower.add_row(_predictions(view, width), Group(_alerts(view), _hints(view)))
    upper = [_gpus(view)] if view.page.gpus else []
    return Group(_head(view), *upper, _kernels(view, screen.most_kernels, width), lower, *screen.below, _keys(view))


def _head(view: TopView) -> RenderableType:
    line = _text(f" {view.title} ", view.source_style)
    age = view.age_seconds
    strip = Text("  ")
    if view.error:
        strip.append(_text(f"{view.error}; {_how_old(view)}", "bold red"))
    elif view.history.page is None:
        strip.append("waiting for the first page", style="dim")
    elif view.page.is_bridge and not view.page.producers:
        strip.append("no producer reports to this bridge", style="bold red")
    else:
        strip.append(f"age of data {ABSENT if age is None else duration(age)}", style="bold red" if view.is_old else "")
    producers = view.page.producers
    if producers:
        silent = sorted(f"{job} {instance}" for (job, instance), up in producers.items() if not up)
        strip.append(f"   {len(producers)} producers seen")
        if silent:
            more = " and more" if len(silent) > 3 else ""
            strip.append(_text(f", silent: {', '.join(silent[:3])}{more}", "bold red"))
    sources = sorted(source or "live" for source in view.page.sources)
    if sources:
        strip.append(_text(f"   source: {', '.join(sources)}"))
    return Group(line, strip)


def _how_old(view: TopView) -> str:
    if view.history.page is None:
        return "no page was read"
    age = view.age_seconds
    if age is None:
        return f"these figures are older than {duration(view.now_seconds - view.history.page_seconds)}"
    return f"these figures are {duration(age)} old"


def _gpus(view: TopView) -> RenderableType:
    gpus = view.gpus()
    names = [f"{host} / {index}" for host, index, _ in gpus[:MAX_GPUS]]
    table = _table()
    table.add_column("GPU", no_wrap=True, min_width=min(max(map(len, names)), _MAX_NAME))
    for title in ("load %", "°C/limit", "W/limit", "SM MHz", "GiB/of", ""):
        table.add_column(title, justify="right", no_wrap=True)
    for name, (_, _, values) in zip(names, gpus, strict=False):
        table.add_row(_text(name), *_gpu_cells(values))
    more = f"; {len(gpus) - MAX_GPUS} more: filter with f" if len(gpus) > MAX_GPUS else ""
    return _panel(table, f"GPUs{more}")


def _gpu_cells(values: Any) -> list[Text]:
    def value(row: Any) -> float | None:
        found: float | None = values.get(row.prometheus_name)
        return found

    temperature, limit = value(device.GPU_TEMP), value(device.SLOWDOWN_TEMP)
    power, power_limit = value(device.POWER_USAGE), value(device.POWER_LIMIT)
    used, free = value(device.FB_USED), value(device.FB_FREE)
    total = used + free + (value(device.FB_RESERVED) or 0.0) if used is not None and free is not None else None
    temperature_style = ""
    if temperature is not None and limit is not None:
        near = "yellow" if temperature >= limit - _NEAR_DEGREES else ""
        temperature_style = "bold red" if temperature >= limit else near
    memory_style = "yellow" if used is not None and total and used >= _NEARLY_FULL_RATIO * total else ""
    answers = value(gpu.GPU_UP)
    state = Text("does not answer", style="bold red") if answers == 0 else Text("")
    if temperature_style == "bold red":
        state = Text("at its limit", style="bold red")
    return [
        Text(_number(value(device.GPU_UTIL))),
        _of(_number(temperature), temperature_style, _number(limit)),
        _of(_number(power), "yellow" if power and power_limit and power >= power_limit else "", _number(power_limit)),
        Text(_number(value(device.SM_CLOCK))),
        _of(_gib(used), memory_style, _gib(total)),
        state,
    ]


def _kernels(view: TopView, most: int, width: int) -> RenderableType:
    every = view.kernels()
    launches = sum(one.launches_per_second or 0.0 for one in every)
    known = any(one.launches_per_second is not None for one in every)
    table = _table()
    table.add_column("kernel", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("program", no_wrap=True, overflow="ellipsis", max_width=18)
    figures = ("GPUs busy", "launches/s", "mean now", "change", "before", "p99")
    shown = len(figures) if width >= WIDE else _NARROW_FIGURES
    for title in figures[:shown]:
        table.add_column(title, justify="right", no_wrap=True)
    for one in every[:most]:
        table.add_row(*_kernel_cells(one)[: shown + 2])
    rate = f"{launches:,.0f} launches/s" if known else "rates after the second reading"
    chosen = f", with “{view.controls.text}”" if view.controls.text else ""
    title = f"kernels by {view.controls.sort}{chosen}: {len(every)}, {rate}"
    silent = view.page.is_bridge and not view.page.producers
    empty = "no kernel matches" if view.page.kernels else "not known" if silent else "no kernels seen"
    return _panel(table if every else Text(empty, style="dim"), title)


def _kernel_cells(one: KernelNow) -> list[Text]:
    ratio = one.change_ratio
    slower = "" if ratio is None or ratio < SLOWER_RATIO else "bold red" if ratio >= MUCH_SLOWER_RATIO else "yellow"
    return [
        _text(one.name, "dim" if one.collective else ""),
        _text(", ".join(one.programs)),
        Text(ABSENT if one.busy_ratio is None else f"{one.busy_ratio:.2f}"),
        Text(ABSENT if one.launches_per_second is None else f"{one.launches_per_second:,.1f}"),
        Text(duration(one.mean_seconds)),
        Text(ABSENT if ratio is None else f"x{ratio:.2f}", style=slower),
        Text(duration(one.before_seconds), style="dim"),
        Text(duration(one.p99_seconds)),
    ]


def _predictions(view: TopView, width: int) -> RenderableType:
    every = view.predictions()
    title = f"predicted and crossed limits: {len(every)}" if every else "predicted breaches"
    if not every:
        return _panel(Text(view.no_prediction(), style="dim"), title)
    table = _table()
    table.add_column("subject", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("time left", justify="right", no_wrap=True)
    wide = width >= WIDE
    if wide:
        table.add_column("cause", no_wrap=True)
        table.add_column("P", justify="right", no_wrap=True)
    for one in every[:MAX_PREDICTIONS]:
        labels, probability = one["labels"], one["probability"]
        when = Text(_when(one), style="bold red" if one["crossed_seconds_ago"] is not None else "")
        likely = ABSENT if probability is None else f"{probability:.0%}"
        details = (_text(labels.get("cause", "")), likely) if wide else ()
        table.add_row(_text(subject_of(labels)), when, *details)
    return _panel(table, title)


def _alerts(view: TopView) -> RenderableType:
    firing = view.alerts.firing
    if firing is None:
        return _panel(_text(f"not known: {view.alerts.reason}", "dim"), "alerts that fire")
    if not firing:
        return _panel(Text("no alert fires; the heartbeat arrives", style="dim"), "alerts that fire")
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for severity, name, every in view.alert_groups()[:MAX_ALERTS]:
        style = {"critical": "bold red", "warning": "yellow"}.get(severity, "")
        subjects = ", ".join(sorted({_source_of(labels) for labels in every}))
        table.add_row(
            _text(name.removeprefix(_ALERT_PREFIX), style),
            Text(f"x{number}" if (number := counted(every)) > 1 else ""),
            _text(subjects),
        )
    return _panel(table, f"alerts that fire: {view.alert_count()}")


def _hints(view: TopView) -> RenderableType:
    lines = []
    for one in view.hints()[:MAX_HINTS]:
        style = {"kept": "green", "rolled_back": "red", "rejected": "red"}.get(one["state"], "")
        change = f" {one['previous']} → {one['proposed']}," if one["proposed"] else ""
        state = _HINT_STATES.get(one["state"], one["state"].replace("_", " "))
        lines.append(_text(f"{one['program']} {one['tunable']}:{change} {state}{_effect(one)}", style))
    body = Text("\n").join(lines) if lines else Text("no hint on this page", style="dim")
    return _panel(body, "hints")


def _effect(hint: Mapping[str, Any]) -> str:
    for name, word in (("measured_ratio", ""), ("expected_ratio", " expected")):
        if hint[name] is not None:
            return f", kernel time x{hint[name]:.2f}{word}"
    return ""


def _keys(view: TopView) -> RenderableType:
    controls = view.controls
    if controls.typing:
        return Text(f"filter: {controls.text}_   Enter keeps it, Esc clears it", style="bold")
    paused = Text("PAUSED  ", style="bold black on yellow") if controls.paused else Text("")
    return paused + Text("q quit   p pause   s sort   f filter   Esc all", style="dim")


def _text(shown: str, style: str = "") -> Text:
    """Text with names from a page: it has neither rich's markup nor escape sequences."""
    return Text(printable(shown), style=style)


def _table() -> Table:
    return Table(expand=True, box=None, header_style="bold", padding=(0, 1, 0, 0), pad_edge=False)


def _of(value: str, style: str, limit: str) -> Text:
    """A value, and its limit or whole."""
    return Text.assemble((value, style), (f"/{limit}", "dim"))


def _gib(mebibytes: float | None) -> str:
    return ABSENT if mebibytes is None else f"{mebibytes / 1024:.1f}"


def _panel(body: RenderableType, title: str) -> RenderableType:
    return Panel(body, title=_text(title), title_align="left")


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """A time in the largest unit of which it has one or more, of minutes and hours two."""
    if seconds is None:
        return ABSENT
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def _when(prediction: Mapping[str, Any]) -> str:
    """The time until a limit is crossed, or the time since, in whole units."""
    ago = prediction["crossed_seconds_ago"]
    if ago is None:
        return duration(prediction["seconds_left"])
    if ago < 60:
        return f"crossed {ago:.0f} s ago"
    return f"crossed {ago / 60:.0f} min ago" if ago < 7200 else f"crossed {ago / 3600:.0f} h ago"


def subject_of(labels: Mapping[str, str]) -> str:
    """Subject of a prediction or an alert: GPU, program, kernel and metric, as far as they are known."""
    names = (_source_of(labels), *(labels.get(name, "") for name in ("program", "kernel", "metric")))
    return " ".join(filter(None, dict.fromkeys(names)))  # a program without a node would be named twice


def _source_of(labels: Mapping[str, str]) -> str:
    """The GPU, else the node, else the program, else the scraped address."""
    node, index = labels.get("Hostname", ""), labels.get("gpu", "")
    if node and index:
        return f"{node} GPU {index}"
    return node or labels.get("program", "") or labels.get("instance", "")
