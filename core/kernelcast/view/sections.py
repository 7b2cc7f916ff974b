"""A picture as tables of cells, in the order of their importance: what `text` and `html` both draw."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kernelcast.view.model import HintNow, Level, Picture, Prediction, has_ended, is_idle, runs, verdict_of
from kernelcast.view.rates import KernelNow, ProgramNow
from kernelcast.view.words import (
    ABSENT,
    duration,
    gib,
    number,
    percent,
    rate,
    since,
    source_of,
    time_left,
)
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.verdict import phase_label

SLOWER_RATIO: Final = 1.1
"""Mean duration of a kernel against before, from which it is marked."""
MUCH_SLOWER_RATIO: Final = 1.5
"""The same, from which it is bad."""
_NEARLY_FULL_RATIO: Final = 0.9
"""Share of a GPU's memory from which it is marked."""
_HINT_STATES: Final = {"trial": "on trial", "approval": "waits for approval"}
"""Words for the states of a hint whose names do not say enough."""
_HINT_LEVELS: Final[dict[str, Level]] = {"kept": "good", "rolled_back": "bad", "rejected": "bad"}
_SEVERITIES: Final[dict[str, Level]] = {"critical": "bad", "warning": "warn"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        title: Its heading.
        right: Whether its cells are set flush right, as numbers are.
        wide: Whether a narrow screen leaves it out.
        spare: Whether it is left out where no row has a value.
        phone: Whether a telephone shows it.
        grows: Whether it takes the room that the others leave, and its cells are cut to it.
    """

    title: str
    right: bool = False
    wide: bool = False
    spare: bool = False
    grows: bool = False
    phone: bool = True


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        text: Its text.
        level: Whether it is bad, a warning or good.
        limit: A limit or a whole that is written behind it.
        shares: Name and share of each part, which a browser also draws as a bar.
        href: Page to which a browser leads.
    """

    text: str
    level: Level = ""
    limit: str = ""
    shares: tuple[tuple[str, float], ...] = ()
    href: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """One table.

    Attributes:
        name: A word for it.
        title: Heading, with what is beside the rows.
        columns: Its columns; the first has the title as its heading in a terminal.
        rows: Cells of each row.
        empty: What an empty table means.
        few: Rows that a small screen shows before another section has more than its first.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str
    few: int = 3


def sections(picture: Picture, order: str = "") -> tuple[Section, ...]:
    """The tables, the most important first. An exporter's page ends with a line that names its missing tables.

    Args:
        picture: What matters now.
        order: How the kernels are sorted and filtered, for their heading.
    """
    tables = tuple(map(_without_empty_columns, _tables(picture, order)))
    if picture.is_bridge or not picture.has_page:
        return tables
    missing = {table.name for table in tables if not table.rows and _can_be_missing(table.name, picture)}
    present = tuple(table for table in tables if table.name not in missing)
    return (*present, _missing_tables(missing)) if missing else present


def _can_be_missing(name: str, picture: Picture) -> bool:
    """Whether an empty table means only that this node has no such thing, or that exporters do not show it."""
    kernels_are_filtered = name == "kernels" and picture.all_kernels
    return name != "programs" and (name != "alerts" or picture.alerts is None) and not kernels_are_filtered


def _missing_tables(names: Container[str]) -> Section:
    """A single line in place of all tables that an exporter's page does not have."""
    here = ", ".join(word for name, word in (("gpus", "GPUs"), ("kernels", "kernels")) if name in names)
    elsewhere = ", ".join(name for name in ("alerts", "predictions", "hints") if name in names)
    words = filter(None, (here, elsewhere and f"on a bridge (port 19401): {elsewhere}"))
    return Section("lacking", "not here", (), (), "; ".join(words))


def _tables(picture: Picture, order: str) -> Sequence[Section]:
    return (
        _gpus(picture),
        _programs(picture),
        _alerts(picture),
        _predictions(picture),
        _hints(picture),
        _kernels(picture, order),
    )


def _without_empty_columns(section: Section) -> Section:
    """The section without spare columns in which no row has a value, as the p99 of a page without buckets."""
    kept = [
        place
        for place, column in enumerate(section.columns)
        if not column.spare or any(row[place].text not in ("", ABSENT) for row in section.rows)
    ]
    rows = tuple(tuple(row[place] for place in kept) for row in section.rows)
    return replace(section, columns=tuple(section.columns[place] for place in kept), rows=rows)


def _gpus(picture: Picture) -> Section:
    columns = (
        Column("GPU"),
        Column("load %", right=True),
        Column("°C/limit", right=True),
        Column("W/limit", right=True),
        Column("SM MHz", right=True, phone=False),
        Column("GiB/of", right=True, phone=False),
        Column("state", spare=True, grows=True),
    )
    rows = []
    for gpu in picture.gpus:
        level, words = gpu.state
        power, power_limit = gpu.value(device.POWER_USAGE), gpu.value(device.POWER_LIMIT)
        at_limit: Level = "warn" if power and power_limit and power >= power_limit else ""
        used, whole = gpu.memory_mib
        full: Level = "warn" if used is not None and whole and used >= _NEARLY_FULL_RATIO * whole else ""
        rows.append(
            (
                Cell(f"{gpu.node} / {gpu.index}"),
                Cell(number(gpu.value(device.GPU_UTIL))),
                Cell(
                    number(gpu.value(device.GPU_TEMP)),
                    gpu.heat,
                    number(gpu.value(device.SLOWDOWN_TEMP)),
                ),
                Cell(number(power), at_limit, number(power_limit)),
                Cell(number(gpu.value(device.SM_CLOCK))),
                Cell(gib(used), full, gib(whole)),
                Cell(words, level),
            )
        )
    return Section("gpus", "GPUs", columns, tuple(rows), _unknown(picture) or "no GPU on this page", few=4)


def _programs(picture: Picture) -> Section:
    columns = (
        Column("program"),
        Column("ranks", right=True, wide=True),
        Column("steps", right=True, wide=True),
        Column("steps/s", right=True),
        Column("items/s", right=True),
        Column("step", right=True, phone=False),
        Column("where the time goes", grows=True),
    )
    empty = "none seen: kernelcast probe -- python train.py"
    return Section("programs", "programs", columns, tuple(map(_program, picture.programs)), _unknown(picture) or empty)


def _program(program: ProgramNow) -> tuple[Cell, ...]:
    sentence = verdict_of(program) if runs(program) else ""
    regions = _percentages(program.regions)
    measured = {phase for phase, _share in program.phases}
    phases = _percentages(
        (phase_label(phase, measured), share) for phase, share in program.phases if phase != "other" or not regions
    )
    word, bound, _ = sentence.partition("-bound:")
    words = f"{word}-bound: {phases}" if bound else phases
    level: Level = "warn" if word == "input" else ""
    if has_ended(program):
        level, words = "", f"has ended: {phases}"
    elif program.slow_rank is not None:
        level, words = "warn", sentence
    elif is_idle(program):
        level, words = "bad", f"no step for {since(program.idle_seconds)}, in {', '.join(program.now)}"
    elif regions:
        words = "; ".join(filter(None, (words, f"in {regions}")))
    elif not words:
        launches = program.launches_per_second
        words = ABSENT if launches is None else f"{rate(launches)} kernel launches/s"
    makes_steps = bool(program.steps)
    return (
        Cell(program.name if program.processes <= program.ranks else f"{program.name} ({program.processes} processes)"),
        Cell(number(program.ranks)),
        Cell(number(program.steps) if makes_steps else ABSENT),
        Cell(rate(program.steps_per_second) if makes_steps else ABSENT),
        Cell(rate(program.items_per_second)),
        Cell(duration(program.step_seconds)),
        Cell(words, level, shares=program.phases),
    )


def _percentages(shares: Iterable[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {percent(share)}" for name, share in shares if share >= 0.005)


def _alerts(picture: Picture) -> Section:
    columns = (Column("alert"), Column("", right=True), Column("where", grows=True))
    rows = tuple(
        (
            Cell(
                group.short_name,
                _SEVERITIES.get(group.severity, ""),
                href=f"/runbooks/{group.name}" if picture.is_bridge else "",
            ),
            Cell(f"x{group.number}" if group.number > 1 else ""),
            Cell(", ".join(group.subjects)),
        )
        for group in picture.alert_groups
    )
    count = sum(group.number for group in picture.alert_groups)
    title = f"alerts that fire: {count}" if count else "alerts that fire"
    unknown = f"not known: {picture.alerts_unknown}"
    return Section("alerts", title, columns, rows, unknown if picture.alerts is None else "no alert fires")


def _predictions(picture: Picture) -> Section:
    columns = (
        Column("predicted"),
        Column("cause"),
        Column("what", grows=True),
        Column("limit"),
        Column("P", right=True, wide=True, spare=True),
    )
    groups: dict[tuple[str, str, str], list[Prediction]] = {}
    for prediction in picture.predictions:
        state = "crossed" if prediction.crossed_seconds_ago is not None else ""
        key = source_of(prediction.labels), prediction.labels.get("cause", ""), state
        groups.setdefault(key, []).append(prediction)
    rows = []
    for (source, cause, crossed), group in groups.items():
        first = group[0]
        names = (first.labels.get(name, "") for name in ("program", "kernel", "metric"))
        what = " ".join(name for name in names if name not in ("", source))  # a program without a node is the source
        more = f" and {len(group) - 1} more" if len(group) > 1 else ""
        rows.append(
            (
                Cell(source),
                Cell(cause.replace("_", " ")),
                Cell(f"{what}{more}"),
                Cell(time_left(first.seconds_left, first.crossed_seconds_ago), "bad" if crossed else "warn"),
                Cell(ABSENT if first.probability is None else percent(first.probability)),
            )
        )
    title = f"predicted, crossed: {len(picture.predictions)}" if rows else "predicted breaches"
    return Section("predictions", title, columns, tuple(rows), picture.no_prediction)


def _hints(picture: Picture) -> Section:
    columns = (Column("hint"), Column("state", grows=True))
    rows = tuple(
        (Cell(f"{hint.program} {hint.tunable}"), Cell(_hint_words(hint), _HINT_LEVELS.get(hint.state, "")))
        for hint in picture.hints
    )
    return Section("hints", "hints", columns, rows, _unknown(picture) or "no hint on this page", few=2)


def _hint_words(hint: HintNow) -> str:
    state = _HINT_STATES.get(hint.state, hint.state.replace("_", " "))
    change = f"{hint.previous} → {hint.proposed}, " if hint.proposed else ""
    value = f" {hint.value}" if hint.value and hint.state == "kept" else ""
    for ratio, word in ((hint.measured_ratio, ""), (hint.expected_ratio, " expected")):
        if ratio is not None:
            return f"{change}{state}{value}, time x{ratio:.2f}{word}"
    return f"{change}{state}{value}"


def _kernels(picture: Picture, order: str) -> Section:
    columns = (
        Column("kernel", grows=True),
        Column("program", phone=False),
        Column("GPUs busy", right=True),
        Column("launches/s", right=True, phone=False),
        Column("mean now", right=True),
        Column("change", right=True),
        Column("before", right=True, wide=True),
        Column("p99", right=True, wide=True, spare=True),
    )
    known = [kernel.launches_per_second for kernel in picture.kernels if kernel.launches_per_second is not None]
    speed = f"{sum(known):,.0f} launches/s" if known else "rates after the second reading"
    title = f"kernels{order}: {len(picture.kernels)}, {speed}" if picture.kernels else "kernels"
    empty = _unknown(picture) or ("no kernel matches" if picture.all_kernels else "no kernels seen")
    return Section("kernels", title, columns, tuple(map(_kernel, picture.kernels)), empty, few=2)


def _kernel(kernel: KernelNow) -> tuple[Cell, ...]:
    ratio = kernel.change_ratio
    slower: Level = "" if ratio is None or ratio < SLOWER_RATIO else "bad" if ratio >= MUCH_SLOWER_RATIO else "warn"
    return (
        Cell(kernel.name),
        Cell(", ".join(kernel.programs)),
        Cell(ABSENT if kernel.busy_ratio is None else f"{kernel.busy_ratio:.2f}"),
        Cell(rate(kernel.launches_per_second)),
        Cell(duration(kernel.mean_seconds)),
        Cell(ABSENT if ratio is None else f"x{ratio:.2f}", slower),
        Cell(duration(kernel.before_seconds)),
        Cell(duration(kernel.p99_seconds)),
    )


def _unknown(picture: Picture) -> str:
    """Why an empty table says nothing; empty where it does."""
    if not picture.has_page:
        return "not known yet: no page was read"
    return "not known: no producer reports" if picture.is_bridge and not picture.producers else ""
