"""What the outputs of rocm-smi and amd-smi have in common: JSON objects one after the other, without times."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kernelcast.exporter.nvml.recordings.recording import Answers, RecordedChanges, Recording, changes
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

OBJECT: Final = re.compile(r"^\s*\{", re.MULTILINE)
GENERATIONS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe generation by transfers per second of a lane, in GT/s."""


def objects(text: str) -> Iterator[Mapping[str, Any] | None]:
    """Yields the JSON objects of a text, and None for each that is cut.

    The tools print warnings, such as one of a low-power state, before and between them.
    """
    decoder, at = json.JSONDecoder(), 0
    while begin := OBJECT.search(text, at):
        try:
            document, at = decoder.raw_decode(text, begin.end() - 1)
        except (ValueError, RecursionError):
            document, at = None, begin.end()
        yield document


def recording(outputs: Sequence[Answers], damaged: int) -> Recording:
    """Make a recording of outputs that came a second apart; `damaged` others were cut."""
    note = f"outputs that are cut, and left out: {damaged}" if damaged else ""
    return Recording(tuple(_moments(outputs)), note)


def _moments(outputs: Sequence[Answers]) -> Iterator[RecordedChanges]:
    before = Answers()
    for number, now in enumerate(outputs):
        yield RecordedChanges(number * NANOSECONDS_PER_SECOND, changes(before, now))
        before = now
