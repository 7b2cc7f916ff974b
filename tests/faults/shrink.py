"""Makes a failing schedule shorter: leaves operations out, then reduces the others, while it fails alike."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.faults.model.operations import Schedule
from tests.faults.model.world import Operation

T = TypeVar("T")


def shrunk(items: Sequence[T], fails: Callable[[Sequence[T]], bool], *, smaller: Callable[[T], Iterator[T]]) -> list[T]:
    """The shortest list found that still fails.

    Args:
        items: A list that fails.
        fails: Whether a list does; called many times.
        smaller: Simpler things to try in place of one, the simplest first.

    Source: Zeller and Hildebrandt, Simplifying and isolating failure-inducing input, 2002, section 3.
    """
    kept = _fewer(list(items), fails)
    again = True
    while again:
        again = False
        for index in range(len(kept)):
            for simple in smaller(kept[index]):
                tried = [*kept[:index], simple, *kept[index + 1 :]]
                if fails(tried):
                    kept, again = tried, True
                    break
        fewer = _fewer(kept, fails)
        kept, again = fewer, again or len(fewer) < len(kept)
    return kept


def shortened(schedule: Schedule, kind: str) -> Schedule:
    """A schedule in memory with as little in it as breaks the same invariant."""

    def fails(tried: Schedule) -> bool:
        return tried.finding()[0] == kind

    def fewer(tried: Schedule) -> Schedule:
        kept = shrunk(tried.operations, lambda few: fails(tried.with_operations(few)), smaller=simpler)
        return tried.with_operations(kept)

    schedule = fewer(schedule)
    for name in ("replicas", "producers", "partitions"):
        for count in range(1, getattr(schedule.setting, name)):
            counts: dict[str, Any] = {name: count}
            setting = replace(schedule.setting, **counts)
            if fails(replace(schedule, setting=setting)):
                schedule = replace(schedule, setting=setting)
                break
    return fewer(schedule)


def simpler(operation: Operation) -> Iterator[Operation]:
    """Simpler operations: with smaller numbers."""
    for amount in sorted({0, operation.amount // 2, operation.amount - 1}):
        if 0 <= amount < operation.amount:
            yield operation._replace(amount=amount)
    for which in range(operation.which):
        yield operation._replace(which=which)


def _fewer(items: list[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    size = max(1, len(items) // 2)
    while True:
        at, shorter = 0, False
        while at < len(items):
            tried = items[:at] + items[at + size :]
            if len(tried) < len(items) and fails(tried):
                items, shorter = tried, True
            else:
                at += size
        if size == 1 and not shorter:
            return items
        size = max(1, size // 2)
