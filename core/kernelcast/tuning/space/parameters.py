"""Parameters of a search space and their values, checked; `Space` is made of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from kernelcast.wire.errors import SpaceError

Value = bool | int | float | str

MAX_PARAMETERS: Final = 64
MAX_VALUES: Final = 4096
MAX_TEXT: Final = 256
"""Characters of a name or value. These limits bound the size of documents and journals."""


@dataclass(frozen=True)
class Parameter:
    """A parameter and the values that it may take, in the order in which they were given.

    Attributes:
        name: Its name, unique in the space.
        values: 1 to 4,096 different values: integers, floats, booleans or strings.
    """

    name: str
    values: tuple[Value, ...]
    _places: Mapping[Value, int] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        """Check name and values.

        Raises:
            SpaceError: A name or value that cannot be used.
        """
        if not 0 < len(self.name) <= MAX_TEXT:
            raise SpaceError(f"the parameter name {self.name!r} is no string of 1 to {MAX_TEXT} characters; rename it")
        if not 0 < len(self.values) <= MAX_VALUES:
            raise SpaceError(
                f"parameter {self.name} has {len(self.values)} values; it needs 1 to {MAX_VALUES:,}; give fewer or more"
            )
        places: dict[Value, int] = {}
        for place, value in enumerate(self.values):
            self._check(value)
            if value in places:
                raise SpaceError(
                    f"parameter {self.name} has equal values {self.values[places[value]]!r} and {value!r}; remove one"
                )
            places[value] = place
        object.__setattr__(self, "_places", places)

    def _check(self, value: Any) -> None:
        if not isinstance(value, bool | int | float | str):
            raise SpaceError(
                f"value {value!r} of parameter {self.name} is a {type(value).__name__}; "
                "use integers, floats, booleans or strings"
            )
        if isinstance(value, float) and not isfinite(value):
            raise SpaceError(f"value {value!r} of parameter {self.name} is not finite; remove it")
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise SpaceError(
                f"a value of parameter {self.name} has {len(value)} characters; the limit is {MAX_TEXT}; shorten it"
            )

    def place(self, value: Any) -> int:
        """Return the place of a value among the values.

        Raises:
            SpaceError: The parameter does not have this value.
        """
        try:
            return self._places[value]
        except (KeyError, TypeError):
            shown = ", ".join(repr(one) for one in self.values[:8]) + (", …" if len(self.values) > 8 else "")
            raise SpaceError(f"parameter {self.name} has no value {value!r}; its values are {shown}") from None

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers, so that their order and distance mean something."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


def parameters_from(values: Mapping[Any, Any]) -> tuple[Parameter, ...]:
    """Make parameters from values by name.

    Raises:
        SpaceError: No parameter, too many, or one that cannot be used.
    """
    if not 0 < len(values) <= MAX_PARAMETERS:
        raise SpaceError(f"a space has {len(values)} parameters; it needs 1 to {MAX_PARAMETERS}; split or join it")
    for name, listed in values.items():
        if not isinstance(name, str):
            raise SpaceError(f"the parameter name {name!r} is no string; rename it")
        if isinstance(listed, str | bytes) or not hasattr(listed, "__iter__"):
            raise SpaceError(f"the values of parameter {name} are {listed!r}; give a list, such as [32, 64, 128]")
    return tuple(Parameter(name, tuple(listed)) for name, listed in values.items())
