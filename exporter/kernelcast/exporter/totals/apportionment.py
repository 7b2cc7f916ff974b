"""Dividing a whole number so that the parts add up to it exactly."""

from collections.abc import Sequence


def apportion(total: int, weights: Sequence[int]) -> list[int]:
    """Parts of `total` in proportion to `weights`, by largest remainder (Hamilton's method).

    Args:
        total: From 0 on.
        weights: From 0 on, not all 0.

    Returns:
        One part for each weight; they add up to `total`, and each differs from its exact share by less than 1.

    Raises:
        ZeroDivisionError: All weights are 0.
    """
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights]
    missing = total - sum(parts)
    if missing:
        by_remainder = sorted(range(len(weights)), key=lambda at: (-(total * weights[at] % whole), at))
        for at in by_remainder[:missing]:
            parts[at] += 1
    return parts


def active_part(total: int, *, elapsed_ns: int, spent_ns: int) -> int:
    """The part of an interval's total that belongs to the time in which something was known to run.

    Args:
        total: Of the interval.
        elapsed_ns: Its length, above 0.
        spent_ns: GPU time of all that ran; kernels beside each other may have more than the interval is long.
    """
    return total * min(spent_ns, elapsed_ns) // elapsed_ns
