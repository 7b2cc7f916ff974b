"""The valid configurations of a space, numbered: immutable, and shared by campaign, search and program.

Every configuration of the product of the values has an *ordinal*: its number in the order in which nested loops over
the parameters reach it, the last parameter innermost. Example: with values of x in (16, 32) and of y in (1, 2, 4),
the configuration x=32, y=2 has ordinal 4 (1 * 3 + 1). A *place* is the index of a value among its parameter's values.
The valid ordinals are a sorted array, so that a space of 100,000 configurations takes 800 kB.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product as combinations
from math import prod
from typing import Any, Final

from kernelcast.tuning.space.configuration import Configuration
from kernelcast.tuning.space.parameters import Parameter, Value, parameters_from
from kernelcast.wire.errors import SpaceError

MAX_VALID: Final = 200_000
"""Valid configurations of a space; their ordinals take 1.6 MB."""
MAX_EVALUATED: Final = 1 << 22
"""Most configurations for which a restriction is evaluated; it takes some seconds for each million."""
MAX_PRODUCT: Final = 1 << 64
"""Most combinations of values of a listed space, so that each has an ordinal of 8 bytes."""

Restriction = Callable[[Configuration], Any]


class Space:
    """A named set of valid configurations, one of which is the start.

    Immutable, so any thread may use it. Make it with `restricted` or `listed`.

    Attributes:
        name: The space's name.
        parameters: Its parameters, in order.
        ordinals: The valid configurations, sorted.
        start: The configuration of an untuned program; valid.
    """

    def __init__(
        self, name: str, parameters: tuple[Parameter, ...], ordinals: "array[int]", start: Sequence[Value]
    ) -> None:
        self.name = name
        self.parameters = parameters
        self.counts = tuple(len(parameter.values) for parameter in parameters)
        self.product = prod(self.counts)
        self.strides = tuple(prod(self.counts[place + 1 :]) for place in range(len(self.counts)))
        self.ordinals = ordinals
        if not ordinals:
            raise SpaceError(f"space {name} has no valid configuration; check its restriction")
        if len(ordinals) > MAX_VALID:
            raise SpaceError(
                f"space {name} has {len(ordinals):,} valid configurations; the limit is {MAX_VALID:,}; restrict it"
            )
        self.start = self.ordinal(start)

    @classmethod
    def restricted(
        cls,
        name: str,
        values: Mapping[str, Sequence[Value]],
        *,
        start: Mapping[str, Value],
        valid: Restriction | None = None,
    ) -> "Space":
        """Make a space from values by name and a restriction that is evaluated here, once for each configuration.

        Args:
            name: The space's name.
            values: Values by parameter.
            start: The configuration in force before any tuning.
            valid: Whether a configuration may be used; all may without it.

        Raises:
            SpaceError: Values, start or restriction cannot be used.
        """
        parameters = parameters_from(values)
        names = [parameter.name for parameter in parameters]
        if missing := set(names).symmetric_difference(start):
            raise SpaceError(f"the start of space {name} and its parameters differ in {', '.join(sorted(missing))}")
        count = prod(len(parameter.values) for parameter in parameters)
        if count > MAX_EVALUATED:
            raise SpaceError(
                f"space {name} has {count:,} combinations of values; the restriction is evaluated for at most "
                f"{MAX_EVALUATED:,}; use fewer values"
            )
        every = enumerate(combinations(*(parameter.values for parameter in parameters)))
        if valid is None:
            ordinals = array("Q", range(count))
        else:
            ordinals = array("Q", (place for place, one in every if _holds(name, valid, Configuration(names, one))))
        return cls(name, parameters, ordinals, [start[parameter] for parameter in names])

    @classmethod
    def listed(
        cls,
        name: str,
        values: Mapping[str, Sequence[Value]],
        *,
        start: Sequence[Value],
        valid: Iterable[Sequence[Value]],
    ) -> "Space":
        """Make a space from a list of its valid configurations, each a value for every parameter in order.

        Raises:
            SpaceError: Values, start or a configuration cannot be used.
        """
        parameters = parameters_from(values)
        strides = [prod(len(one.values) for one in parameters[place + 1 :]) for place in range(len(parameters))]
        if strides[0] * len(parameters[0].values) > MAX_PRODUCT:
            raise SpaceError(f"space {name} has more than {MAX_PRODUCT:,} combinations of values; use fewer values")
        found = {_ordinal(parameters, strides, configuration) for configuration in valid}
        return cls(name, parameters, array("Q", sorted(found)), start)

    def __len__(self) -> int:
        return len(self.ordinals)

    def __contains__(self, ordinal: int) -> bool:
        place = bisect_left(self.ordinals, ordinal)
        return place < len(self.ordinals) and self.ordinals[place] == ordinal

    def places(self, ordinal: int) -> tuple[int, ...]:
        """Return the places of a configuration's values, one for each parameter."""
        return tuple(ordinal // stride % count for stride, count in zip(self.strides, self.counts, strict=True))

    def values(self, ordinal: int) -> tuple[Value, ...]:
        """Return a configuration's values in the order of the parameters."""
        places = self.places(ordinal)
        return tuple(parameter.values[place] for parameter, place in zip(self.parameters, places, strict=True))

    def configuration(self, ordinal: int) -> Configuration:
        """Return a configuration's values by name."""
        return Configuration([parameter.name for parameter in self.parameters], self.values(ordinal))

    def ordinal(self, values: Sequence[Value]) -> int:
        """Return the ordinal of a valid configuration.

        Raises:
            SpaceError: A value that its parameter does not have, or a configuration that is not valid.
        """
        ordinal = _ordinal(self.parameters, self.strides, values)
        if ordinal not in self:
            shown = ", ".join(f"{one.name}={value!r}" for one, value in zip(self.parameters, values, strict=True))
            raise SpaceError(f"the configuration {shown} of space {self.name} is not valid; choose a valid one")
        return ordinal

    def neighbours(self, ordinal: int) -> Iterator[int]:
        """Yield the valid configurations that differ in one parameter."""
        for stride, count in zip(self.strides, self.counts, strict=True):
            place = ordinal // stride % count
            for other in range(count):
                near = ordinal + (other - place) * stride
                if other != place and near in self:
                    yield near


def _holds(name: str, valid: Restriction, configuration: Configuration) -> bool:
    try:
        return bool(valid(configuration))
    except Exception as error:
        raise SpaceError(
            f"the restriction of space {name} raised {type(error).__name__}: {error} for {configuration}; mend it"
        ) from error


def _ordinal(parameters: Sequence[Parameter], strides: Sequence[int], values: Any) -> int:
    if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != len(parameters):
        raise SpaceError(f"the configuration {values!r} is no list of {len(parameters)} values")
    return sum(
        stride * parameter.place(value) for stride, parameter, value in zip(strides, parameters, values, strict=True)
    )
