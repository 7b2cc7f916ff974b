"""Cost of a calendar: passes over all series without periods and with some; one of them is now."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import numpy as np
from benchmarks.predictor.memory.full import FullMemory

from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, CalendarSettings

CHUNK_ROWS: Final = 2048
DAY_SECONDS: Final = 86_400.0
WEEK_SECONDS: Final = 7 * DAY_SECONDS
NODES: Final = (r"node-0000\d\..*", r"node-000[1-4]\d\..*", r"node-.*[02468]\.cluster\..*", r"node-.*5\.cluster\..*")
"""Patterns of hosts, each with its weekly maintenance."""


def calendar_cost(memory: FullMemory) -> dict[str, dict[str, float]]:
    """Processor seconds of each pass over all series.

    Args:
        memory: Series with full histories; it has no calendar afterwards.
    """
    attributes = memory.engine.cycle.attributes
    plain = attributes.settings
    none: tuple[CalendarSettings, ...] = ()
    found: dict[str, dict[str, float]] = {}
    for name, periods in (("without", none), ("with", _periods(memory.second))):
        attributes.change(plain.model_copy(update={"calendar": periods}))
        found[name] = _passes(memory)
    attributes.change(plain)
    return found


def calendar_lines(found: dict[str, dict[str, float]]) -> list[tuple[str, str, str]]:
    """Lines of the table: a name, its figures, and no goal."""
    head = ("calendar of five periods, processor seconds with it / without", "", "")
    pairs = {name: f"{seconds:.3f} / {found['without'][name]:.3f}" for name, seconds in found["with"].items()}
    return [head, *((f"  {name.replace('_', ' ')}", pair, "") for name, pair in pairs.items())]


def _passes(memory: FullMemory) -> dict[str, float]:
    cycle, windows, rows = memory.engine.cycle, memory.engine.windows, memory.rows
    chunks = [rows[begin : begin + CHUNK_ROWS] for begin in range(0, len(rows), CHUNK_ROWS)]
    newest = cycle.histories.newest_block(rows)
    now_ns = np.full(len(rows), memory.second * NANOSECONDS_PER_SECOND)
    return {
        "describe_all_once": _seconds(lambda: [cycle.attributes.sync(chunk, windows).size for chunk in chunks]),
        "read_blocks_of_all": _seconds(lambda: [cycle.histories.blocks(chunk, newest)[0].shape for chunk in chunks]),
        "ask_for_now": _seconds(lambda: cycle.attributes.excused_now(rows, now_ns)),
    }


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _periods(second: float) -> tuple[CalendarSettings, ...]:
    """A holiday of a day ago, and weekly maintenance of an hour of some nodes; the first is now."""
    holiday = CalendarSettings(begin=_moment(second - 2 * DAY_SECONDS), end=_moment(second - DAY_SECONDS))
    weekly = [
        CalendarSettings(
            begin=_moment(second - 1800 - WEEK_SECONDS - number * DAY_SECONDS),
            end=_moment(second + 1800 - WEEK_SECONDS - number * DAY_SECONDS),
            every_seconds=WEEK_SECONDS,
            labels={"Hostname": pattern},
        )
        for number, pattern in enumerate(NODES)
    ]
    return (holiday, *weekly)


def _moment(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)
