"""Plain functions whose parameters are keyword arguments."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any


def keywords(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for `ProgramSpace.tuned` that passes the configuration's values as keyword arguments.

    Where the space has a parameter `chunk`, `space.tuned(keywords(smooth))(values)` calls `smooth(values, chunk=256)`.

    Args:
        function: Takes the parameters of the space by name, besides its own arguments.
    """

    @wraps(function)
    def call(configuration: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named, **configuration)

    return call
