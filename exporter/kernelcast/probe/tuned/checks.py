"""Checks of a candidate's numbers: against those of the kept configuration, or for values that are no numbers.

They work with floats, sequences of floats, and arrays of NumPy, CuPy, JAX or PyTorch, and import none of these.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

Check = Callable[[Any, Any], bool]
"""Takes the candidate's result and that of the kept configuration; returns whether the candidate's is right."""


def close(*, rtol: float = 1e-3, atol: float = 0.0) -> Check:
    """Return a check that results differ by at most `atol` plus `rtol` times the kept configuration's.

    Args:
        rtol: Permitted difference relative to the kept configuration's value.
        atol: Permitted difference besides that.
    """

    def check(result: Any, reference: Any) -> bool:
        if isinstance(result, list | tuple):
            return _same_length(result, reference) and all(map(check, result, reference))
        return _all(abs(result - reference) <= atol + rtol * abs(reference))

    return check


def finite() -> Check:
    """Return a check that a result has no NaN and no infinity where the kept configuration's has none."""

    def check(result: Any, reference: Any) -> bool:
        if isinstance(result, list | tuple):
            return _same_length(result, reference) and all(map(check, result, reference))
        return _all(result - result == 0) or not _all(reference - reference == 0)

    return check


def copied(result: Any) -> Any:
    """Copy a result that the repeated call may overwrite."""
    if hasattr(result, "copy"):
        return result.copy()
    return result.clone() if hasattr(result, "clone") else copy(result)


def _same_length(result: Sequence[Any], reference: Any) -> bool:
    return isinstance(reference, list | tuple) and len(result) == len(reference)


def _all(found: Any) -> bool:
    return bool(found.all()) if hasattr(found, "all") else bool(found)
