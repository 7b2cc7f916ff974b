"""Paths into JSON for `json.mapping` and the settings: `$.hosts[*].metrics[*]`, `@.value`, `^.name`.

A path begins with `$`, the whole message, with `@`, the point, or with `^`. Steps follow: `.name` or
`['any name']`, and `[0]`. Only the path of the points may have `[*]` or `.*`; both mean every element of an array or
every value of an object.

`^` is the item that the last but one `*` chose, or the whole message if there was one `*` at most; `^^` is one `*`
further up. Example: the points are `$.hosts[*].metrics[*]`. Then `@` is a metric, `^` its host, `^^` the message.
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
"""A name, an index, or None for `*`."""
Trail = tuple[Any, ...]
"""The whole message, the item that each `*` but the last chose, and the point. If the message itself is the point, it
is there twice."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path, parsed from its text.

    Attributes:
        up: Levels above the point at which it begins: 0 for `@`, 1 for `^`; -1 for `$`, the whole message.
        steps: The steps from there.
    """

    up: int
    steps: tuple[Step, ...]

    @classmethod
    def parse(cls, text: str) -> "JsonPath":
        """Parse a path.

        Raises:
            ConfigurationError: The text is not a path.
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

    @property
    def member(self) -> Step:
        """Its last step; None if it leads to its root."""
        return self.steps[-1] if self.steps else None

    @property
    def parent(self) -> "JsonPath":
        """The path to what holds its last step."""
        return JsonPath(self.up, self.steps[:-1])

    def find(self, trail: Trail) -> Any:
        """Return the value at the path, seen from a point; None if there is none, or if the path has a `*`."""
        if self.up >= len(trail):
            return None
        value = trail[0] if self.up < 0 else trail[-1 - self.up]
        for step in self.steps:
            value = _step(value, step)
        return value

    def find_all(self, message: Any) -> Iterator[Trail]:
        """Yield the trail of each point of a message; the path begins with `$`."""
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
        # The point replaces the item that the last `*` chose. Without any `*`, it follows the message.
        yield (*trail[:-1], value) if len(trail) > 1 else (*trail, value)


def _step(value: Any, step: Step) -> Any:
    if isinstance(step, str):
        return value.get(step) if isinstance(value, dict) else None
    if isinstance(step, int) and isinstance(value, list) and step < len(value):
        return value[step]
    return None
