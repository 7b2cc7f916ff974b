"""Rules that propose another value for a tunable, each with its source."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kernelcast.predictor.tuning.tunables import ReportedTunable
from kernelcast.wire.events import Evidence

WARP: Final = 32
SMALLEST_BLOCK: Final = 64
GOOD_BLOCKS: Final = (128, 256)
LARGEST_BLOCK: Final = 1024

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
RULE_NAMES: Final = ("block_size_not_warp_multiple", "block_size_small")


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def _better_block(tunable: ReportedTunable, size: int) -> str | None:
    """The allowed multiple of 32 in 128 to 256 that is nearest to the present one, else the nearest from 64 up."""
    sizes = {number: text for text in tunable.allowed if (number := _whole(text)) is not None}
    fit = [number for number in sizes if number % WARP == 0 and SMALLEST_BLOCK <= number <= LARGEST_BLOCK]
    good = [number for number in fit if GOOD_BLOCKS[0] <= number <= GOOD_BLOCKS[1]]
    nearest = min(good or fit, key=lambda number: (abs(number - size), number), default=None)
    return sizes[nearest] if nearest is not None else None
