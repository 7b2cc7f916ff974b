"""What a scrape is written from, as the compiled writers take it: tuples of arrays."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import FloatArray, Int32Array, Int64Array, UInt8Array


class PackedTexts(NamedTuple):
    """Texts end to end: text i is `data[indptr[i]:indptr[i + 1]]`."""

    data: UInt8Array
    indptr: Int64Array

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> "PackedTexts":
        """Join texts."""
        parts = tuple(texts)
        indptr = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(item) for item in parts], out=indptr[1:])
        return cls(np.frombuffer(bytearray(b"".join(parts)), np.uint8), indptr)


class PageLayout(NamedTuple):
    """What is written around the values of n series in f families, in one format.

    Attributes:
        starts: Shape (f + 1,), position of each family's first series; ends with n.
        headers: What stands before each family's series.
        names: Each family's name, as its samples have it; in protobuf, where the header has it, empty.
        created: Names of the samples that tell since when a family's series count; empty where none are written.
        kinds: Shape (f,), which message protobuf puts the value into, and whether samples may have an exemplar.
        arena: Label bytes.
        label_offset: Shape (n,), where each series' labels start.
        label_length: Shape (n,).
    """

    starts: Int64Array
    headers: PackedTexts
    names: PackedTexts
    created: PackedTexts
    kinds: UInt8Array
    arena: UInt8Array
    label_offset: Int64Array
    label_length: Int32Array


class PageValues(NamedTuple):
    """The values of n series.

    Attributes:
        value: Shape (n,); a histogram's sum.
        integer: Shape (n,), the value where flagged INTEGER; a histogram's count.
        start_ns: Shape (n,), since when it counts; 0 where nobody said.
        block: Shape (n,), where a histogram's block starts in `buckets`.
        schema: Shape (n,), which bounds it has; NOT_A_HISTOGRAM without.
        flags: Shape (n,).
        buckets: Cumulative counts of all histograms; of exponential ones, blocks as `exponential` lays them out.
        indptr: Which of the bounds belong to which schema.
        bounds: Finite upper bounds of all schemas.
        bound_texts: `le="…"} ` of each bound.
    """

    value: FloatArray
    integer: Int64Array
    start_ns: Int64Array
    block: Int64Array
    schema: Int32Array
    flags: UInt8Array
    buckets: Int64Array
    indptr: Int64Array
    bounds: FloatArray
    bound_texts: PackedTexts


class Marks(NamedTuple):
    """Exemplars of m samples, encoded for one format, in the order of the samples.

    Attributes:
        position: Shape (m,), the series of each; rising.
        bucket: Shape (m,), its bucket, counted from the lowest bound; 0 for counters; rising within a series.
        encoded: What is written after the sample, or into it.
    """

    position: Int64Array
    bucket: Int32Array
    encoded: PackedTexts


NO_MARKS = Marks(np.zeros(0, np.int64), np.zeros(0, np.int32), PackedTexts.of(()))
"""What a page without exemplars has."""
