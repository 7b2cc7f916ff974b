"""Classes of metrics by which scores are kept, and series numbers that are the same after a restart."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from kernelcast.wire.catalogue.meanings import SCORE_CLASSES, score_class

CLASSES: Final = SCORE_CLASSES
"""Names of the classes; a class is stored as its place in this tuple."""


def class_number(metric: str) -> int:
    """Place in `CLASSES` of a metric's class, by its Prometheus name."""
    return CLASSES.index(score_class(metric))


def series_number(metric: str, labels: Iterable[tuple[str, str]]) -> int:
    """A number of 63 bits for a series, the same in every process.

    Args:
        metric: Prometheus name.
        labels: Pairs of name and value, in any order.
    """
    text = "\0".join([metric, *(part for pair in sorted(labels) for part in pair)])
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) >> 1
