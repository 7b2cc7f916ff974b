"""Paths into JSON: `$.hosts[*].metrics[*]`, `@.value`, `^.name`.

`$` is the whole message, `@` the point, `^` what encloses the point (the object or array element that the last `*` was
in), `^^` what encloses that. Behind it stand `.name` or `['any name']`, `[0]`, and, in the path of the points alone,
`[*]` for every element of an array and `.*` for every value of an object.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.wire.errors import ConfigurationError

_ROOT: Final = re.compile(r"\$|@|\^+")
_STEP: Final = re.compile(r"\.([^.\[\]'\"\s]+)|\[([0-9]{1,9})\]|\[\*\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_MISSING: Final = object()

Step = str | int | None
"""A name, an index, or None for all."""
Trail = tuple[Any, ...]
"""The objects around a point, the whole message first, the point last."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path, read from its text.

    Attributes:
        up: How many levels above the point it begins; -1 for the whole message.
        steps: Where it goes from there.
    """

    up: int
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> "JsonPath":
        """Read a path.

        Raises:
            ConfigurationError: It is none.
        """
        root = _ROOT.match(text)
        if root is None:
            raise ConfigurationError(
                f"{text!r} is no path; a path begins with $, @ or ^; write '@.value', for instance"
            )
        steps: list[Step] = []
        at = root.end()
        while at < len(text):
            found = _STEP.match(text, at)
            if found is None:
                raise ConfigurationError(
                    f"{text!r} is no path from {text[at:]!r} on; write .name, ['a name'], [0], or [*] for all"
                )
            name, index, quoted, double = found.groups()
            named = next((part for part in (name, quoted, double) if part is not None), None)
            steps.append(int(index) if index is not None else None if name == "*" else named)
            at = found.end()
        return cls({"$": -1, "@": 0}.get(root[0], len(root[0])), tuple(steps))

    @property
    def is_single(self) -> bool:
        """Whether it leads to one value at most."""
        return None not in self.steps

    def find(self, trail: Trail) -> Any:
        """The value it leads to, or None."""
        if self.up >= len(trail):
            return None
        value = trail[0] if self.up < 0 else trail[-1 - self.up]
        for step in self.steps:
            value = _step(value, step)
        return value

    def find_all(self, message: Any) -> Iterator[Trail]:
        """All values that the path leads to, each with the objects around it."""
        yield from _walk((message,), message, self.steps)


def _walk(trail: Trail, value: Any, steps: tuple[Step, ...]) -> Iterator[Trail]:
    for position, step in enumerate(steps):
        if step is None:
            items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            for item in items:
                yield from _walk((*trail, item), item, steps[position + 1 :])
            return
        value = _step(value, step)
    if value is not None:
        yield (*trail[:-1], value) if len(trail) > 1 else (*trail, value)


def _step(value: Any, step: Step) -> Any:
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    if isinstance(step, int) and isinstance(value, list) and step < len(value):
        return value[step]
    return None
