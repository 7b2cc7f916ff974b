"""Rules that propose another value for a tunable, each with its source: pure functions for `HintBook.propose`."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kernelcast.predictor.tuning.diagnosis import Diagnosis
from kernelcast.predictor.tuning.tunables import ReportedTunable
from kernelcast.wire.catalogue.diagnosis.rules import RULES as DIAGNOSIS_RULES
from kernelcast.wire.catalogue.diagnosis.rules import Direction
from kernelcast.wire.events import Evidence

WARP: Final = 32
"""Threads of a warp; a block of another size than a multiple of it leaves lanes idle."""
SMALLEST_BLOCK: Final = 64
"""Threads of a block from which the limit of resident blocks no longer keeps a multiprocessor from filling up."""
GOOD_BLOCKS: Final = (128, 256)
LARGEST_BLOCK: Final = 1024
"""Threads of a block that CUDA allows at most."""

BEST_PRACTICES: Final = "CUDA C++ Best Practices Guide, section Thread and Block Heuristics"
LAUNCH_CONFIGURATION: Final = "Nsight Compute, rule LaunchConfiguration"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Another value for a tunable.

    Attributes:
        rule: Name of the rule.
        value: The value, one of those allowed.
        expected_ratio: New kernel time over old; None where the rule has no figure.
        expected_interval: Its interval.
        confidence: Between 0 and 1.
        evidence: Why.
    """

    rule: str
    value: str
    expected_ratio: float | None
    expected_interval: tuple[float, float] | None
    confidence: float
    evidence: tuple[Evidence, ...]


Rule = Callable[[ReportedTunable], Proposal | None]


def block_size_not_warp_multiple(tunable: ReportedTunable) -> Proposal | None:
    """A block that is no multiple of 32 leaves lanes of its last warp idle: (1/warps)(1 - r/32) of its time."""
    size = _whole(tunable.value)
    if tunable.kind != "block_size" or size is None or size < 1 or size % WARP == 0:
        return None
    value = _better_block(tunable, size)
    if value is None:
        return None
    warps = -(-size // WARP)
    ratio = 1 - (1 / warps) * (1 - size % WARP / WARP)
    evidence = (
        Evidence("block_size_not_warp_multiple", "block_size", tunable.value, BEST_PRACTICES),
        Evidence("block_size_not_warp_multiple", "idle_lane_ratio", f"{1 - ratio:.4f}", LAUNCH_CONFIGURATION),
    )
    return Proposal("block_size_not_warp_multiple", value, ratio, (ratio, 1.0), 0.7, evidence)


def block_size_small(tunable: ReportedTunable) -> Proposal | None:
    """Under 64 threads a block, the limit of resident blocks keeps a multiprocessor from filling up."""
    size = _whole(tunable.value)
    if tunable.kind != "block_size" or size is None or size < 1 or size % WARP or size >= SMALLEST_BLOCK:
        return None
    value = _better_block(tunable, size)
    if value is None:
        return None
    evidence = (Evidence("block_size_small", "block_size", tunable.value, BEST_PRACTICES),)
    return Proposal("block_size_small", value, None, None, 0.5, evidence)


RULES: Final[tuple[Rule, ...]] = (block_size_not_warp_multiple, block_size_small)
RULE_NAMES: Final = (
    "block_size_not_warp_multiple",
    "block_size_small",
    *(rule.name for rule in DIAGNOSIS_RULES if rule.advice.kinds),
)
_SWITCHED_ON: Final = frozenset({"on", "true", "1", "yes"})
_MAX_DIGITS: Final = 9


def by_diagnosis(tunable: ReportedTunable, diagnoses: Iterable[Diagnosis]) -> Proposal | None:
    """The next value of a tunable that carries out the advice of a rule which holds for its program.

    A collective tunable is tried by all ranks together. A program whose ranks cannot agree rejects the hint.
    """
    for diagnosis in diagnoses:
        advice = diagnosis.rule.advice
        if diagnosis.subject.program != tunable.program or tunable.kind not in advice.kinds:
            continue
        value = _next_value(tunable, advice.direction)
        if value is not None:
            rule = diagnosis.rule
            evidence = (Evidence(rule.name, rule.evidence, f"{diagnosis.value:.4g}", rule.source),)
            return Proposal(rule.name, value, None, None, 0.5, evidence)
    return None


def _next_value(tunable: ReportedTunable, direction: Direction) -> str | None:
    if direction is Direction.ON:
        is_on = tunable.value.lower() in _SWITCHED_ON
        return None if is_on else next((text for text in tunable.allowed if text.lower() in _SWITCHED_ON), None)
    present = _number(tunable.value)
    numbers = {number: text for text in tunable.allowed if (number := _number(text)) is not None}
    if present is None:
        return None
    if direction is Direction.UP:
        return numbers.get(min((one for one in numbers if one > present), default=math.nan))
    return numbers.get(max((one for one in numbers if one < present), default=math.nan))


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _whole(text: str) -> int | None:
    # The texts come from programs, and `int` raises ValueError for one of more than 4,300 digits.
    return int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit() else None


def _better_block(tunable: ReportedTunable, size: int) -> str | None:
    """The allowed multiple of 32 in 128 to 256 that is nearest to the present one, else the nearest from 64 up."""
    sizes = {number: text for text in tunable.allowed if (number := _whole(text)) is not None}
    fit = [number for number in sizes if number % WARP == 0 and SMALLEST_BLOCK <= number <= LARGEST_BLOCK]
    good = [number for number in fit if GOOD_BLOCKS[0] <= number <= GOOD_BLOCKS[1]]
    nearest = min(good or fit, key=lambda number: (abs(number - size), number), default=None)
    return sizes[nearest] if nearest is not None else None
