"""A sentence about what a reader leaves out: each table or category of events with its share of the recorded time."""

from collections.abc import Mapping
from typing import Final

SHOWN: Final = 8


def unread(what: str, left_out: Mapping[str, tuple[int, float]], read_time: float) -> tuple[str, ...]:
    """Name what is not read, by time.

    Args:
        what: `events` or `tables`.
        left_out: Number and summed time, by name.
        read_time: Summed time of what is read, in the same unit.
    """
    total = read_time + sum(time for _, time in left_out.values())
    order = sorted(left_out, key=lambda name: (-left_out[name][1], name))
    shown = [
        f"{name} ({left_out[name][0]}, {100 * left_out[name][1] / total if total else 0:.1f} % of all time)"
        for name in order[:SHOWN]
    ]
    if not shown:
        return ()
    more = f" and {len(order) - SHOWN} more" if len(order) > SHOWN else ""
    return (f"{what} that are not read: {', '.join(shown)}{more}",)
