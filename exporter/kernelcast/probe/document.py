"""Writes `docs/api.md` from the docstrings and signatures of `kernelcast.probe`.

`python -m kernelcast.probe.document` prints the page.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

from kernelcast import probe

GROUPS: Final = MappingProxyType(
    {
        "Start and stop": ("start", "stop", "Probe", "DeviceClaim"),
        "Measure": ("region", "step", "data", "observe", "count", "copy", "sync"),
        "Tune": ("tunable", "Tunable", "space", "ProgramSpace", "close", "finite"),
        "Tune with a framework": (
            "keywords",
            "cupy_kernel",
            "triton_autotune",
            "TorchLoader",
            "TorchBuckets",
            "TorchMemoryFormat",
            "torch_compiled",
            "jax_static",
        ),
    }
)
PUBLIC_MEMBERS: Final = MappingProxyType(
    {
        "Probe": (
            "settings",
            "outcomes",
            "observe",
            "count",
            "copy",
            "sync",
            "step",
            "configuration",
            "tunable",
            "space",
            "stop",
        ),
        "Tunable": ("name", "value", "allowed"),
        "ProgramSpace": ("name", "configuration", "tuned"),
    }
)
"""Members of classes that only `kernelcast.probe` makes; their other members are for the package itself."""

_CONSTRUCTORS: Final = frozenset(("Args", name) for name in PUBLIC_MEMBERS)
"""Arguments that only the package itself passes."""
MAX_CHARACTERS: Final = 100
_BLOCK: Final = re.compile(r" ::\n\n((?:(?: {4}.*)?(?:\n|$))+)")
_MODULES: Final = re.compile(r"(?:\w+\.)+(?=\w)|[~+](?=\w)")
_SECTIONS: Final = frozenset({"Args", "Attributes", "Returns", "Raises"})
_PREAMBLE: Final = """\
# API of the probe

<!-- Made by `python -m kernelcast.probe.document`; change the docstrings in exporter/kernelcast/probe instead. -->

Everything that a program may use of `kernelcast.probe`. [probe.md](probe.md) explains the methods of measurement,
regions and tunables; [examples](../examples/README.md) are programs to copy. Only `tunable` and `space` raise errors of
their own: no other function raises into the program or blocks it. Where no probe runs, `observe`, `count`, `copy`,
`sync`, `step` and `stop` do nothing, and regions and tunables work as usual.

```python
from kernelcast import probe
```
"""


@dataclass(slots=True)
class Docstring:
    """A docstring in Google's style, taken apart.

    Attributes:
        summary: The first paragraph.
        body: The paragraphs after it.
        items: Names and texts of each section.
        returns: The text of `Returns`.
    """

    summary: str = ""
    body: str = ""
    items: dict[str, dict[str, str]] = field(default_factory=dict)
    returns: str = ""


def document() -> str:
    """The whole page, in Markdown."""
    parts = [_PREAMBLE]
    for group, names in GROUPS.items():
        parts.append(f"## {group}\n")
        parts += [_entry(name, getattr(probe, name)) for name in names]
    return "\n".join(parts)


def sections(text: str) -> Docstring:
    """Take a docstring apart."""
    found, section, item = Docstring(), "", ""
    paragraphs: list[str] = []
    for line in text.splitlines():
        if line.rstrip(":") in _SECTIONS and line.endswith(":"):
            section, item = line[:-1], ""
        elif not section:
            paragraphs.append(line.rstrip())
        elif section == "Returns":
            found.returns = f"{found.returns} {line.strip()}".strip()
        elif line.startswith("    ") and not line.startswith("     "):
            item, _, rest = line.strip().partition(": ")
            found.items.setdefault(section, {})[item] = rest
        elif line.strip():
            found.items[section][item] += f" {line.strip()}"
    found.summary, _, found.body = _fenced("\n".join(paragraphs).strip()).partition("\n\n")
    return found


def _fenced(text: str) -> str:
    """Text of a docstring with its indented blocks, which ` ::` begins, as Markdown's blocks of Python."""
    return _BLOCK.sub(lambda block: f"\n\n```python\n{textwrap.dedent(block[1]).rstrip()}\n```\n\n", text).rstrip()


def signature(name: str, thing: Any) -> str:
    """A call as it is written, on one line where it fits."""
    shown = inspect.signature(thing)
    parts = list(_parameters(shown))
    result = "" if isinstance(thing, type) else f" -> {_annotation(shown.return_annotation)}"
    line = f"{name}({', '.join(parts)}){result}"
    if len(line) <= MAX_CHARACTERS:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){result}"])


def _entry(name: str, thing: Any) -> str:
    described = sections(inspect.getdoc(thing) or "") if _has_code(thing) else _alias(name)
    lines = [f"### {name}", ""]
    if _has_code(thing) and name not in PUBLIC_MEMBERS:
        lines += ["```python", signature(name, thing), "```", ""]
    lines += [described.summary, *(["", described.body] if described.body else []), ""]
    for section, column in (("Args", "argument"), ("Attributes", "attribute")):
        rows = described.items.get(section, {})
        if rows and (section, name) not in _CONSTRUCTORS:
            lines += [f"| {column} | meaning |", "|---|---|"]
            lines += [f"| `{item}` | {text.replace('|', chr(92) + '|')} |" for item, text in rows.items()] + [""]
    if described.returns:
        lines += [f"Returns: {described.returns}", ""]
    lines += [f"Raises `{error}`: {text}\n" for error, text in described.items.get("Raises", {}).items()]
    return "\n".join(lines)


def _has_code(thing: Any) -> bool:
    """Whether it is a function or a class, not an alias of a type."""
    return inspect.isfunction(thing) or isinstance(thing, type)


def _alias(name: str) -> Docstring:
    """The text below an alias in the module that defines it: an alias has no docstring of its own."""
    module = sys.modules[probe.Tunable.__module__]
    body = ast.parse(inspect.getsource(module)).body
    for node, following in pairwise(body):
        if not isinstance(node, ast.Assign) or not isinstance(following, ast.Expr):
            continue
        (target,) = node.targets
        if isinstance(target, ast.Name) and target.id == name and isinstance(following.value, ast.Constant):
            text = inspect.cleandoc(str(following.value.value))
            return Docstring(summary=f"```python\n{name} = {ast.unparse(node.value)}\n```\n\n{text}")
    raise LookupError(f"{name} has no text below its definition in {module.__name__}; write one")


def _parameters(shown: inspect.Signature) -> Iterator[str]:
    starred = False
    for one in shown.parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        default = "" if one.default is inspect.Parameter.empty else f" = {one.default!r}"
        stars = "**" if one.kind is inspect.Parameter.VAR_KEYWORD else ""
        yield f"{stars}{one.name}: {_annotation(one.annotation)}{default}"


def _annotation(annotation: Any) -> str:
    """An annotation without the modules in which its classes lie."""
    return _MODULES.sub("", annotation if isinstance(annotation, str) else inspect.formatannotation(annotation))


if __name__ == "__main__":
    sys.stdout.write(document())
