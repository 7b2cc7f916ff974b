"""Input of `expose`'s compiled functions: layout, values and exemplars of a page, as tuples of arrays."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import FloatArray, Int32Array, Int64Array, UInt8Array


class PackedTexts(NamedTuple):
    """Texts stored in one array: text i is `data[indptr[i]:indptr[i + 1]]`."""

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
    """Everything on a page except the values, for n series in f families, in one format.

    Attributes:
        starts: Shape (f + 1,), position of each family's first series; ends with n.
        headers: Header of each family.
        names: Sample name of each family; empty in protobuf, which has the name in the header.
        created: Sample names of the start times; empty for families without them.
        kinds: Shape (f,), kind of each family: it selects protobuf's message, and whether samples may have exemplars.
        arena: Label bytes.
        label_offset: Shape (n,), index of each series' first label byte.
        label_length: Shape (n,), number of label bytes.
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
        value: Shape (n,), the value, or a histogram's sum.
        integer: Shape (n,), the value if flagged INTEGER, or a histogram's count.
        start_ns: Shape (n,), start time of the series; 0 if unknown.
        block: Shape (n,), index of a histogram's first word in `buckets`.
        schema: Shape (n,), number of its bounds; NOT_A_HISTOGRAM for other kinds.
        flags: Shape (n,), INTEGER and HAS_SUM.
        buckets: Cumulative counts of all histograms; of exponential ones, blocks as `tables.exponential` describes.
        indptr: Row pointers of the schemas into `bounds`.
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


class EncodedExemplars(NamedTuple):
    """Exemplars of m samples, encoded for one format, in the order of the samples.

    Attributes:
        position: Shape (m,), the series of each; rising.
        bucket: Shape (m,), its bucket, counted from the lowest bound; 0 for counters; rising within a series.
        encoded: The encoded exemplars, written after or into their samples.
    """

    position: Int64Array
    bucket: Int32Array
    encoded: PackedTexts


NO_EXEMPLARS = EncodedExemplars(np.zeros(0, np.int64), np.zeros(0, np.int32), PackedTexts.of(()))
"""The exemplars of a page without any."""
