"""Wrappers around functions of a framework, which look like these to the program."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Final

MARK: Final = "kernelcast_marks"
"""Attribute of every wrapper."""


def like(wrapper: Any, function: Any) -> Any:
    """Give a wrapper the name, documentation and signature of the function that it calls; returns the wrapper."""
    update_wrapper(wrapper, function)
    setattr(wrapper, MARK, True)
    return wrapper


def wrap(owner: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Replace a function of a class by a wrapper, unless that has been done.

    Args:
        owner: The class.
        name: The function's name.
        make: Returns the wrapper of a function.
    """
    function = getattr(owner, name)
    if not hasattr(function, MARK):
        setattr(owner, name, like(make(function), function))
