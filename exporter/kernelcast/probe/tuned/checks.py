"""Checks of a candidate's numbers: against those of the kept configuration, or for values that are no numbers.

They work with floats, sequences of floats, and arrays of NumPy, CuPy, JAX or PyTorch, and import none of these.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from copy import copy
from math import inf
from typing import Any

Check = Callable[[Any, Any], bool]
"""Takes the candidate's result and that of the kept configuration; returns whether the candidate's is right."""


def close(*, rtol: float = 1e-3, atol: float = 0.0) -> Check:
    """Return a check that results differ by at most `atol` plus `rtol` times the kept configuration's.

    NaN and infinity are right where the kept configuration has the same.

    Args:
        rtol: Permitted difference relative to the kept configuration's value.
        atol: Permitted difference besides that.
    """

    def check(result: Any, reference: Any) -> bool:
        if isinstance(result, list | tuple):
            return _same_length(result, reference) and all(map(check, result, reference))
        if tuple(getattr(result, "shape", ())) != tuple(getattr(reference, "shape", ())):
            return False  # else a single number could equal each of many
        result, reference = _signed(result), _signed(reference)
        with _without_warnings():
            are_same = (result == reference) | ((result != result) & (reference != reference))  # noqa: PLR0124  NaN
            are_close = abs(result - reference) <= atol + rtol * abs(reference)
            return _all(are_same | (are_close & (abs(reference) < inf)))

    return check


def finite() -> Check:
    """Return a check that a result has no NaN and no infinity where the kept configuration's has none."""

    def check(result: Any, reference: Any) -> bool:
        if isinstance(result, list | tuple):
            return _same_length(result, reference) and all(map(check, result, reference))
        with _without_warnings():
            return _all(result - result == 0) or not _all(reference - reference == 0)

    return check


def copied(result: Any, known: dict[int, Any] | None = None) -> Any:
    """Copy a result, with the arrays in it and in its objects, that the repeated call may overwrite.

    Args:
        result: The result.
        known: Copies that were made, by the id of the original.

    Raises:
        Exception: An array or the result cannot be copied; a shared array would be compared with itself.
    """
    known = {} if known is None else known
    if id(result) in known:
        return known[id(result)]
    if isinstance(result, tuple):
        parts = [copied(part, known) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    if isinstance(result, list | dict):
        made = known[id(result)] = copy(result)  # of the same type, whose attributes a check may read
        for place, one in list(enumerate(result) if isinstance(result, list) else result.items()):
            made[place] = copied(one, known)
        return made
    is_array = hasattr(result, "shape")
    with nullcontext() if is_array else suppress(Exception):
        if hasattr(result, "copy"):
            return result.copy()
        if hasattr(result, "clone"):
            return result.clone()
    made = known[id(result)] = copy(result)
    for name, one in () if made is result else _attributes(made):
        if isinstance(one, list | tuple | dict) or hasattr(one, "shape") or _is_copyable(one):
            object.__setattr__(made, name, copied(one, known))
    return made


def _is_copyable(part: Any) -> bool:
    """Whether an object may be copied, which a lock may not; the copy of a stream would free it."""
    try:
        return not hasattr(part, "__del__") and copy(part) is not part
    except Exception:  # noqa: BLE001  an object of the program's own kind: it stays shared
        return False


def _attributes(made: Any) -> list[tuple[str, Any]]:
    slots = [getattr(kind, "__slots__", ()) for kind in type(made).__mro__]
    names = [name for some in slots for name in ((some,) if isinstance(some, str) else some)]
    found = [(name, getattr(made, name)) for name in names if not name.startswith("__") and hasattr(made, name)]
    return found + list(getattr(made, "__dict__", {}).items())


def _signed(numbers: Any) -> Any:
    """Return numbers of which a difference can be taken: unsigned ones would wrap, booleans have none."""
    kind = str(getattr(numbers, "dtype", ""))
    return numbers * 1.0 if "uint" in kind or "bool" in kind else numbers


def _without_warnings() -> AbstractContextManager[Any]:
    """Let NumPy neither warn of NaN and infinity nor raise, however the program has set it."""
    numpy = sys.modules.get("numpy")
    return nullcontext() if numpy is None else numpy.errstate(all="ignore")


def _same_length(result: Sequence[Any], reference: Any) -> bool:
    return isinstance(reference, list | tuple) and len(result) == len(reference)


def _all(found: Any) -> bool:
    return bool(found.all()) if hasattr(found, "all") else bool(found)
