"""Sentences about what a reader leaves out, and about work of a GPU that the recording itself lacks."""

import re
from collections.abc import Hashable, Mapping
from typing import Final

SHOWN: Final = 8
EDGES_RATIO: Final = 0.01
"""Calls at the edges of a recorded window may have their work outside of it."""
_LAUNCHES: Final = re.compile(r"Launch(?!HostFunc)")
_CAPTURE: Final = "BeginCapture"


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


class LaunchedWork:
    """Work of a GPU that calls launched, and that the recording lacks: profilers lose records without an error.

    Sources: pytorch/pytorch 192021 (records of the first seconds), GindaChen/nsys-ai 160 (all of them).
    """

    def __init__(self) -> None:
        self._calls: set[Hashable] = set()
        self._work: set[Hashable] = set()
        self._is_known = True

    def add_call(self, name: str, identity: Hashable | None) -> None:
        """Add a call; `identity` is what the call and its work have in common."""
        if _CAPTURE in name:
            self._is_known = False
        elif identity is not None and _LAUNCHES.search(name):
            self._calls.add(identity)

    def add_work(self, identity: Hashable | None) -> None:
        """Add work of a GPU; None where the recording does not link it to a call."""
        if identity is None:
            self._is_known = False
        else:
            self._work.add(identity)

    def lacking(self, *, is_cut: bool = False) -> tuple[str, ...]:
        """A sentence; none where a graph was captured, because those calls launch nothing, or work is not linked.

        Args:
            is_cut: Whether the recording's end is missing.
        """
        lacking = len(self._calls - self._work)
        if not self._is_known or lacking <= (0 if is_cut else EDGES_RATIO * len(self._calls)):
            return ()
        return (f"{lacking} of its {len(self._calls)} launching calls have no work of a GPU in it",)
