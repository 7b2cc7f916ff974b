"""Chooses the kernels that get a series of their own: those with the most GPU time, with a reserve for later ones.

`ProgramSeries.settle` calls it once an interval, for series of their own and for series with histogram buckets.
"""

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

RESERVE_DIVISOR: Final = 5
"""One fifth of the slots is reserved for hot kernels that come late, because an admitted kernel keeps its slot."""
RESERVE_SHARE_DIVISOR: Final = 1000
"""A kernel may use the reserve once it has had a thousandth of the GPU time."""


class AdmissionCandidate(Protocol):
    """The figures of a kernel that admission compares."""

    @property
    def signature(self) -> str:
        """Signature of the kernel; it decides ties, so that a restart admits the same kernels."""
        ...

    @property
    def gpu_time_ns(self) -> int:
        """GPU time so far."""
        ...


_Candidate = TypeVar("_Candidate", bound=AdmissionCandidate)


def admit(candidates: Iterable[_Candidate], *, taken: int, slots: int | None, total_ns: int) -> list[_Candidate]:
    """Choose the kernels that get a slot, hottest first.

    Args:
        candidates: Kernels without a slot.
        taken: Number of used slots.
        slots: Number of slots; None for no limit.
        total_ns: GPU time of all kernels, with a slot or without.

    Returns:
        The admitted kernels.
    """
    if slots is None:
        return list(candidates)
    if taken >= slots:
        return []
    admitted: list[_Candidate] = []
    free = slots - slots // RESERVE_DIVISOR
    for candidate in sorted(candidates, key=lambda one: (-one.gpu_time_ns, one.signature)):
        used = taken + len(admitted)
        matters = candidate.gpu_time_ns > 0 and candidate.gpu_time_ns * RESERVE_SHARE_DIVISOR >= total_ns
        if used >= slots or (used >= free and not matters):
            break
        admitted.append(candidate)
    return admitted
