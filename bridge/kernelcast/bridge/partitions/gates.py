"""Finds the partitions that may be exposed: together with others, where a series may be in several of them."""

from collections.abc import Collection
from typing import Final

from kernelcast.bridge.partitions.partition import Partition

STUCK_SECONDS: Final = 60.0
"""Longest time for which the others wait for a partition that cannot be read. After that, points in other partitions
are newer than its points, because writers export more often than once a minute."""


def openable(partitions: Collection[Partition], now_seconds: float, *, joint: bool) -> list[Partition]:
    """Return the hidden partitions that have caught up and need not wait for others.

    Partitions that were assigned together wait for each other; in a consumer group only those of one topic do, and only
    while it has grown. A young partition waits for those of its topic that were assigned before it, too. Example: a
    series has gone from partition 0 to partition 1, which is read again when partition 0 is assigned with its former
    value.

    Args:
        partitions: All assigned partitions.
        now_seconds: Monotonic time.
        joint: Whether a series may be in several partitions of an assignment.
    """
    hidden = [partition for partition in partitions if not partition.passed]
    ready = [partition for partition in hidden if partition.caught_up]
    if not ready:
        return ready
    late = [
        partition
        for partition in hidden
        if not partition.caught_up and now_seconds - partition.moved_at_seconds < STUCK_SECONDS
    ]
    groups = {_group(partition, joint=joint) for partition in late}
    if not joint:  # series may have moved in topics that have grown within one time-to-live
        groups &= {_group(partition, joint=joint) for partition in partitions if partition.young}
    first = {partition.key[0]: partition.cohort for partition in sorted(late, key=lambda one: -one.cohort)}
    return [
        partition
        for partition in ready
        if _group(partition, joint=joint) not in groups
        and not (partition.young and first.get(partition.key[0], partition.cohort) < partition.cohort)
    ]


def _group(partition: Partition, *, joint: bool) -> tuple[int, str]:
    """Return the group in which a partition is exposed: its assignment, and in a consumer group its topic."""
    return partition.cohort, "" if joint else partition.key[0]
