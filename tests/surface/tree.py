"""Compares two descriptions of the public surface, and says in sentences what differs.

A description is a tree of mappings, lists of texts, and plain values. The order of a list does not count.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import yaml

Tree = dict[str, Any]
Entry = tuple[str, ...]

REWORDABLE: Final = frozenset({"help", "title"})
"""Text that people read and no program relies on."""
MAX_CHARACTERS: Final = 200
"""Of an entry on a line of its own; a longer one takes several lines."""
WRITE: Final = "python -m tests.surface.write"

_MISSING: Final = object()


class Kind(Enum):
    """Effect of a difference on those who use earlier revisions."""

    REMOVED = "removed"
    RENAMED = "renamed"
    CHANGED = "changed"
    ADDED = "added"
    REWORDED = "reworded"

    @property
    def breaking(self) -> bool:
        """Whether something that worked before no longer does."""
        return self in {Kind.REMOVED, Kind.RENAMED, Kind.CHANGED}


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs between the frozen and the present surface."""

    kind: Kind
    path: Entry
    before: Any = None
    after: Any = None

    def sentence(self, surface: str) -> str:
        """Name the entry, say what differs, and say what to do."""
        name = f"{surface}: {' / '.join(self.path)}"
        was = "" if self.before == self.path[-1] else f", it was {_short(self.before)}"
        keep = f"keep it, or, if users must change something, run {WRITE} --breaking and say so in CHANGELOG.md"
        return {
            Kind.REMOVED: f"{name} is gone{was}; {keep}",
            Kind.RENAMED: f"{name} is gone, {self.after} has come in its place; {keep}",
            Kind.CHANGED: f"{name} was {_short(self.before)} and is {_short(self.after)}; {keep}",
            Kind.ADDED: f"{name} is new, {_short(self.after)}; run {WRITE}",
            Kind.REWORDED: f"{name} reads {_short(self.after)}, before {_short(self.before)}; run {WRITE}",
        }[self.kind]


def differences(before: Any, after: Any) -> list[Difference]:
    """Every difference, an entry that only got another name as one."""
    found = list(_differences(before, after, ()))
    added = {one.path: one for one in found if one.kind is Kind.ADDED}
    result = []
    for one in found:
        twin = _twin(one, added.values()) if one.kind is Kind.REMOVED else None
        if twin is None:
            result.append(one)
            continue
        del added[twin.path]
        result.append(Difference(Kind.RENAMED, one.path, one.before, twin.path[-1]))
    return [one for one in result if one.kind is not Kind.ADDED or one.path in added]


def _twin(removed: Difference, added: Any) -> Difference | None:
    """The new entry at the same place with the same content, where the content can tell entries apart."""
    same = [
        one
        for one in added
        if one.path[:-1] == removed.path[:-1] and isinstance(one.after, dict | str) and one.after == removed.before
    ]
    return same[0] if len(same) == 1 else None


def _differences(before: Any, after: Any, path: Entry) -> Iterator[Difference]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(name, _MISSING), after.get(name, _MISSING), (*path, name))
    elif isinstance(before, list) and isinstance(after, list):
        yield from (Difference(Kind.REMOVED, (*path, str(one)), one) for one in before if one not in after)
        yield from (Difference(Kind.ADDED, (*path, str(one)), None, one) for one in after if one not in before)
    elif after is _MISSING:
        yield Difference(Kind.REMOVED, path, before)
    elif before is _MISSING:
        yield Difference(Kind.ADDED, path, None, after)
    elif before != after or type(before) is not type(after):
        yield Difference(Kind.REWORDED if path[-1] in REWORDABLE else Kind.CHANGED, path, before, after)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def read(path: Path) -> Tree:
    """A description from its file; an empty one where there is no file yet."""
    if not path.exists():
        return {}
    tree: Tree = load(path.read_text()) or {}
    return tree


def load(text: str) -> Any:
    """Read YAML, with libyaml if it is installed, which is ten times as fast."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  both are safe


def render(tree: Tree, indent: str = "") -> str:
    """A description as YAML, with a line for each entry that is short enough."""
    return "".join(_lines(tree, indent))


def _lines(tree: Tree, indent: str) -> Iterator[str]:
    for name, value in sorted(tree.items()):
        start, line = f"{indent}{_flow(name)}:", _flow(value)
        if len(line) <= MAX_CHARACTERS or not isinstance(value, dict | list):
            yield f"{start} {line}\n"
        elif isinstance(value, dict):
            yield f"{start}\n{render(value, indent + '  ')}"
        else:
            yield f"{start}\n" + "".join(f"{indent}- {_flow(one)}\n" for one in value)


def _flow(value: Any) -> str:
    """A value on one line."""
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(value, Dumper=dumper, default_flow_style=True, width=2**20, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
