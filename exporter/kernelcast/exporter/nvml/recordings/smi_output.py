"""Reads the text of `nvidia-smi -q`: sections, their lines, and values with their units.

The words differ between drivers; those of 2018 to 2026 (410 to 610) are read. A line is found by its section and any of
its names, in upper or lower case, in the section itself or in a part of it. Sources: captures of
utkuozdemir/nvidia_gpu_exporter, thamada/gls and public issues.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import pynvml

from kernelcast.exporter.nvml.recordings.recording import ERROR

START: Final = re.compile(r"^([\t >]*)=+NVSMI LOG=+ *$", re.MULTILINE)
"""An output's first line, after what stands before each of its lines in a quotation or an indented block."""
END: Final = re.compile(r"^#{10,}$", re.MULTILINE)
LINE: Final = re.compile(r"^( *)(\S.*?) *(?:: (.*))?$")
DEPRECATED: Final = re.compile(r"(?<=\S) +\[deprecated\b.*\]$", re.IGNORECASE)
"""A sentence that driver 610 adds to a value: `610.57.04 [Deprecated; will be removed in CUDA 14.0. …]`."""
VALUE: Final = re.compile(r"^(\d+(?:\.\d+)?) *([A-Za-z%]*)$")
INDENT: Final = 4

POWER: Final = MappingProxyType({"mW": 1, "W": 1000})
"""Units of power that are read, in milliwatts."""
MEMORY: Final = MappingProxyType({"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "MB": 2**20})
"""Units of memory that are read, in bytes; an MB is 2^20 bytes as well."""
CLOCK: Final = MappingProxyType({"MHz": 1})
TEMPERATURE: Final = MappingProxyType({"C": 1})
SHARE: Final = MappingProxyType({"%": 1})
COUNT: Final = MappingProxyType({"": 1})
Units = Mapping[str, int]

Answer = Any
"""A value, or `{"error": NVML's code}`."""
NOT_SUPPORTED: Final = MappingProxyType({ERROR: pynvml.NVML_ERROR_NOT_SUPPORTED})
NOT_SHOWN: Final = MappingProxyType({ERROR: pynvml.NVML_ERROR_NO_DATA})
"""The answer of a call whose line the output does not have, or whose text is unknown."""
FAILURES: Final = (
    (re.compile(r"n/a|not supported|not available.*|.*deprecated.*", re.IGNORECASE), pynvml.NVML_ERROR_NOT_SUPPORTED),
    (re.compile(r"insufficient permissions?", re.IGNORECASE), pynvml.NVML_ERROR_NO_PERMISSION),
    (re.compile(r"not found", re.IGNORECASE), pynvml.NVML_ERROR_NOT_FOUND),
    (
        re.compile(r"err!?|.*\b(error|lost|requires re(set|start)|not in ready state)\b.*|time(d )?out", re.IGNORECASE),
        pynvml.NVML_ERROR_UNKNOWN,
    ),
)
"""NVML's code by the text in place of a value, with or without brackets."""


@dataclass(slots=True)
class OutputSection:
    """A part of the output: the `name : value` lines in it, and the parts within it, in order.

    Attributes:
        name: As printed.
        text: Its own value, such as `N/A` of `Remapped Rows : N/A`; empty where it has none.
        parts: What is below it; each line is a part too, because it may have parts.
    """

    name: str = ""
    text: str = ""
    parts: list["OutputSection"] = field(default_factory=list)

    def part(self, *names: str) -> "OutputSection":
        """The first part that has one of the names; an empty one where there is none."""
        return self._part(names) or OutputSection(names[0])

    def texts(self, *names: str) -> Iterator[str]:
        """The values of the lines of these names, in the names' order; of a section with a value itself that one."""
        if self.text:
            yield self.text
        for name in names:
            line = self.line(name)
            if line is not None:
                yield line.text

    def text_of(self, *names: str) -> str:
        """The first such value; empty where there is none."""
        return next(self.texts(*names), "")

    def value(self, *names: str, read: Callable[[str], Answer]) -> Answer:
        """The first value that the GPU supports, or why there is none."""
        answer: Answer = dict(NOT_SHOWN)
        for text in self.texts(*names):
            answer = read(text)
            if answer != NOT_SUPPORTED:
                break
        return answer

    def number(self, *names: str, units: Units = COUNT) -> Answer:
        """The first number among these lines that the GPU supports, in the units' own unit, or why there is none."""
        return self.value(*names, read=lambda text: _number(text, units))

    def _part(self, names: tuple[str, ...]) -> "OutputSection | None":
        wanted = [_key(name) for name in names]
        return next((part for name in wanted for part in self.parts if _key(part.name) == name), None)

    def line(self, name: str) -> "OutputSection | None":
        """The first line of a name with a value, in the section itself or else in a part of it."""
        found = self._part((name,))
        if found is not None and found.text:
            return found
        return next((line for part in self.parts if (line := part.line(name)) is not None), None)


def read_outputs(text: str) -> list[OutputSection]:
    """Every output of `nvidia-smi -q` in a text."""
    _, *parts = START.split(text)
    return [_tree(_bare(END.split(part)[0], before)) for before, part in zip(parts[::2], parts[1::2], strict=True)]


def failure(text: str) -> Answer:
    """NVML's error for a text in place of a value; of an unknown text, that there is no data."""
    code = _failure_code(text)
    return dict(NOT_SHOWN) if code is None else {ERROR: code}


def is_failure(text: str) -> bool:
    """Whether a text stands in place of a value, such as `N/A` or `[Unknown Error]`."""
    return _failure_code(text) is not None


def is_error(answer: Answer) -> bool:
    """Whether an answer is an error."""
    return isinstance(answer, dict) and ERROR in answer


def together(answers: Mapping[str, Answer], make: Callable[[dict[str, Answer]], Answer]) -> Answer:
    """Make one answer of several values; the first error among them where one has none."""
    return next((answer for answer in answers.values() if is_error(answer)), None) or make(dict(answers))


def _failure_code(text: str) -> int | None:
    inner = text.strip("[] .")
    return next((code for pattern, code in FAILURES if pattern.fullmatch(inner)), None)


def _bare(text: str, before: str) -> str:
    """The lines without what stands before each; of an empty line, its trailing spaces may be gone."""
    lines = text.splitlines()
    return "\n".join("" if line.strip() == before.strip() else line.removeprefix(before) for line in lines)


def _number(text: str, units: Units) -> Answer:
    found = VALUE.match(text)
    if not found:
        return failure(text)
    factor = {unit.casefold(): size for unit, size in units.items()}.get(found[2].casefold())
    return dict(NOT_SHOWN) if factor is None else round(float(found[1]) * factor)


def _key(name: str) -> str:
    return " ".join(name.casefold().split())


def _tree(text: str) -> OutputSection:
    root = OutputSection()
    open_sections = [root]
    for line in text.splitlines():
        found = LINE.match(line.expandtabs(INDENT).rstrip())
        if not found:
            continue
        depth = min(len(found[1]) // INDENT, len(open_sections) - 1)
        section = OutputSection(found[2], DEPRECATED.sub("", (found[3] or "").strip()))
        open_sections[depth].parts.append(section)
        open_sections[depth + 1 :] = [section]
    return root
