"""Numbers, times and subjects as people read them, in a terminal and in a browser alike."""

from collections.abc import Mapping
from typing import Final

ABSENT: Final = "–"  # noqa: RUF001  a dash for an absent value


def number(value: float | None) -> str:
    """A number without decimals."""
    return ABSENT if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """A rate with one decimal, two where it is small."""
    return ABSENT if value is None else f"{value:,.2f}" if 0 < value < 10 else f"{value:,.1f}"


def percent(ratio: float) -> str:
    """A ratio as a percentage."""
    return f"{100 * ratio:.0f} %"


def gib(mebibytes: float | None) -> str:
    """Mebibytes in GiB, without the unit."""
    return ABSENT if mebibytes is None else f"{mebibytes / 1024:.1f}"


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


def since(seconds: float | None) -> str:
    """A time in whole seconds, minutes or hours."""
    if seconds is None:
        return ABSENT
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def time_left(seconds_left: float | None, crossed_seconds_ago: float | None) -> str:
    """The time until a limit is crossed, or the time since, in whole units."""
    if crossed_seconds_ago is not None:
        return f"crossed {since(crossed_seconds_ago)} ago"
    return f"in {since(seconds_left)}" if seconds_left is not None else ABSENT


def subject_of(labels: Mapping[str, str]) -> str:
    """Subject of a prediction or an alert: GPU, program, kernel and metric, as far as they are known."""
    names = (source_of(labels), *(labels.get(name, "") for name in ("program", "kernel", "metric")))
    return " ".join(filter(None, dict.fromkeys(names)))  # a program without a node would be named twice


def source_of(labels: Mapping[str, str]) -> str:
    """The GPU, else the node, else the program, else the scraped address."""
    node, index = labels.get("Hostname", ""), labels.get("gpu", "")
    if node and index:
        return f"{node} GPU {index}"
    return node or labels.get("program", "") or labels.get("instance", "")
