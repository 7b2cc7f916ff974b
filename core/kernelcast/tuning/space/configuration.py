"""One configuration of a space, as programs and restrictions see it: a mapping whose parameters are attributes, too."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kernelcast.tuning.space.parameters import Value

RESERVED: Final = frozenset({*dir(Mapping), "_values"})
"""Names that stay methods: a parameter of this name has no attribute."""


class Configuration(Mapping[str, Any]):
    """A value for every parameter, by name: `c.block_size` or `c["block_size"]`. Immutable and hashable.

    A parameter that is named like a method of mappings, such as `values`, is read as `c["values"]`.
    """

    _values: dict[str, Any]

    def __init__(self, names: Sequence[str], values: Sequence[Value]) -> None:
        # Attributes of the instance are read without a call: a restriction reads millions of them.
        given = dict(zip(names, values, strict=True))
        own = self.__dict__
        own.update(given)
        if not RESERVED.isdisjoint(given):
            for name in RESERVED.intersection(given):
                del own[name]
        own["_values"] = given

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __getattr__(self, name: str) -> Any:
        known = ", ".join(self.__dict__.get("_values", ()))
        raise AttributeError(f"the configuration has no parameter {name}; its parameters are {known}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a configuration is immutable; {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a configuration is immutable; {name} cannot be deleted")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return f"Configuration({', '.join(f'{name}={value!r}' for name, value in self._values.items())})"

    def __reduce__(self) -> tuple[type["Configuration"], tuple[list[str], list[Value]]]:
        return Configuration, (list(self._values), list(self._values.values()))
