"""Divides a whole number so that the parts add up to it exactly."""

from collections.abc import Sequence


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Divide `total` in proportion to `weights`, by largest remainder (Hamilton's method).

    Args:
        total: At least 0.
        weights: At least 0, not all 0.

    Returns:
        One part for each weight; they add up to `total`, and each differs from its exact share by less than 1.

    Raises:
        ZeroDivisionError: All weights are 0.
    """
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    missing = total - sum(parts)
    if missing:
        by_remainder = sorted(range(len(weights)), key=lambda index: (-(total * weights[index] % whole), index))
        for index in by_remainder[:missing]:
            parts[index] += 1
    return parts


def active_part(total: int, *, elapsed_ns: int, spent_ns: int) -> int:
    """Return the part of an interval's total for the time in which reported kernels ran.

    Args:
        total: Total of the interval.
        elapsed_ns: Length of the interval, above 0.
        spent_ns: GPU time of all kernels; concurrent kernels may have more than the length of the interval.
    """
    return total * min(spent_ns, elapsed_ns) // elapsed_ns
