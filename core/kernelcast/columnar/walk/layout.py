"""Layout of the compiled decoder's arrays, and the meaning of each slot of its control arrays.

`decoding.tables` makes the arrays, the functions of `walk` read and write them. They are few, because one compiled
function passes each array to another as seven arguments. Compiled code cannot allocate: between calls, Python
replaces arrays that are too small by larger ones.
"""

from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernelcast.columnar.columns import Int32Array, Int64Array, UInt8Array

RecordArray = NDArray[np.void]
UInt64Matrix = NDArray[np.uint64]


class MessageStatus(IntEnum):
    """Result for one message.

    ODD: the walk does not read it; protobuf decides, and rewrites it. GROW_*: an array is too small; Python enlarges it
    and repeats the message. The others are refusals.
    """

    OK = 0
    ODD = -1
    GROW_NUMBERS = -2
    GROW_HISTOGRAMS = -3
    GROW_BUCKETS = -4
    GROW_SERIES = -5
    GROW_CONTEXTS = -6
    TOO_MANY_POINTS = -7
    TOO_MANY_BUCKETS = -8
    TOO_MANY_IDENTITIES = -9
    IDENTITY_TOO_LONG = -10
    SCALE_OUT_OF_RANGE = -11
    OFFSET_OUT_OF_RANGE = -12
    BUCKETS_UNMATCHED = -13
    BOUNDS_UNSORTED = -14
    GROW_EXEMPLARS = -15


# Plain integers: an enum's members cost compiled code a conversion each.
OK: Final = int(MessageStatus.OK)
ODD: Final = int(MessageStatus.ODD)
GROW_NUMBERS: Final = int(MessageStatus.GROW_NUMBERS)
GROW_HISTOGRAMS: Final = int(MessageStatus.GROW_HISTOGRAMS)
GROW_BUCKETS: Final = int(MessageStatus.GROW_BUCKETS)
GROW_SERIES: Final = int(MessageStatus.GROW_SERIES)
GROW_CONTEXTS: Final = int(MessageStatus.GROW_CONTEXTS)
TOO_MANY_POINTS: Final = int(MessageStatus.TOO_MANY_POINTS)
TOO_MANY_BUCKETS: Final = int(MessageStatus.TOO_MANY_BUCKETS)
TOO_MANY_IDENTITIES: Final = int(MessageStatus.TOO_MANY_IDENTITIES)
IDENTITY_TOO_LONG: Final = int(MessageStatus.IDENTITY_TOO_LONG)
SCALE_OUT_OF_RANGE: Final = int(MessageStatus.SCALE_OUT_OF_RANGE)
OFFSET_OUT_OF_RANGE: Final = int(MessageStatus.OFFSET_OUT_OF_RANGE)
BUCKETS_UNMATCHED: Final = int(MessageStatus.BUCKETS_UNMATCHED)
BOUNDS_UNSORTED: Final = int(MessageStatus.BOUNDS_UNSORTED)
GROW_EXEMPLARS: Final = int(MessageStatus.GROW_EXEMPLARS)

# Slots of `WalkState.control`. First those that a message advances, and that `roll_back` resets.
ROWS: Final = 0  # number points so far
HISTOGRAM_ROWS: Final = 1
POSITIVE: Final = 2  # length so far of each CSR's data
NEGATIVE: Final = 3
BOUNDS: Final = 4
BUCKETS: Final = 5
UNSUPPORTED: Final = 6
EXEMPLARS: Final = 7  # points so far that have some
PROGRESS: Final = 8  # number of the slots above
MARKS: Final = 8  # first of as many slots with their values when the message began
WHERE: Final = 16  # position at which the walk last entered a field, for error texts
VERIFY: Final = 17  # 1: the message counts only if protobuf accepts it
POINTS: Final = 18  # points of this message, of every kind
LAST_SERIES: Final = 19  # number of the last point's series; its successor probably is the next point's
LAST_METRIC: Final = 20  # the same of metrics
RESOURCE_START: Final = 21  # bytes of the enclosing resource and scope, and their contexts, -1 until a point needs them
RESOURCE_STOP: Final = 22
RESOURCE: Final = 23
SCOPE_START: Final = 24
SCOPE_STOP: Final = 25
SCOPE: Final = 26
MAX_POINTS: Final = 27
MAX_BUCKETS: Final = 28
MAX_IDENTITY_BYTES: Final = 29
MAX_IDENTITIES: Final = 30
MESSAGE: Final = 31  # index of the message, as the caller counts
SHORT_OF: Final = 32  # with GROW_SERIES and GROW_CONTEXTS: ENTRIES or ARENA
SCHEMA_START: Final = 33  # bytes of the enclosing scope's schema URL
SCHEMA_STOP: Final = 34
QUANTILE: Final = 35  # bits of the quantile whose row is written
CONTROL_SLOTS: Final = 36

ENTRIES: Final = 1  # a store is short of numbers
ARENA: Final = 2  # a store is short of bytes

# Counters of a store.
USED: Final = 0  # numbers ever given, so also the first never given
FREE: Final = 1  # numbers given back, on the free stack
ARENA_USED: Final = 2
WASTE: Final = 3  # bytes of the arena that nothing refers to any more
FRESH: Final = 4  # entries made by the present message
STAMP: Final = 5  # rises with every new entry, so that a reused number differs from its former use
ARENA_MARK: Final = 6  # ARENA_USED when the message began
SEED: Final = 7
HASH_MASK: Final = 8  # all ones; tests clear bits to make hashes collide
STORE_COUNTERS: Final = 9

ABSENT: Final = -1  # a parent: none, the entry is a resource; a slot: empty
UNUSED: Final = -2  # a parent: the number is not in use
TEXT: Final = -3  # a parent: none, the entry is the attribute bytes that series share


ENTRY: Final = np.dtype(
    [
        ("hash", np.uint64),
        ("offset", np.int64),  # where its bytes start in the arena
        ("stamp", np.int64),
        ("parent", np.int32),  # a number of the level above, ABSENT, TEXT or UNUSED
        ("length", np.int32),  # how many of its bytes are identity
        ("extra", np.int32),  # how many follow that are not: a description
        ("refs", np.int32),  # entries that have this one as their parent or text
        ("text", np.int32),  # of a series: the context with its attribute bytes, whose offset and length it repeats
        ("successor", np.int32),  # the entry that followed it last time: a guess, always checked
        (
            "free",
            np.int32,
        ),  # not of this entry: the stack of numbers given back, in the same array to have fewer of them
        ("fresh", np.int32),  # likewise: numbers made by the present message
    ],
    align=True,
)

NUMBER_ROW: Final = np.dtype(
    [
        ("start_ns", np.uint64),
        ("time_ns", np.uint64),
        ("bits", np.uint64),  # of the double or the int64
        ("series", np.int32),
        ("message", np.int32),
        ("flags", np.uint8),
    ],
    align=True,
)

HISTOGRAM_ROW: Final = np.dtype(
    [
        ("start_ns", np.uint64),
        ("time_ns", np.uint64),
        ("count", np.uint64),
        ("total", np.uint64),  # bits of the double, as is zero_threshold
        ("zero_count", np.uint64),
        ("zero_threshold", np.uint64),
        ("positive_end", np.int64),  # where each part of its buckets ends in the CSR data
        ("negative_end", np.int64),
        ("bounds_end", np.int64),
        ("buckets_end", np.int64),
        ("series", np.int32),
        ("message", np.int32),
        ("scale", np.int32),
        ("positive_offset", np.int32),
        ("negative_offset", np.int32),
        ("flags", np.uint8),
    ],
    align=True,
)


EXEMPLAR_ROW: Final = np.dtype(
    [
        ("start", np.int64),  # of the run of exemplar fields of one point, in the bytes that are walked
        ("stop", np.int64),
        ("row", np.int32),  # of the point
        ("histogram", np.uint8),  # which rows those are
    ],
    align=True,
)


class Store(NamedTuple):
    """Byte strings under a parent, each with a number: a hash table over an arena.

    Attributes:
        slots: int32, a power of two long and at most half full; a number, or ABSENT.
        entries: ENTRY by number.
        arena: uint8.
        counters: int64, slots as named above.
    """

    slots: Int32Array
    entries: RecordArray
    arena: UInt8Array
    counters: Int64Array


class WalkState(NamedTuple):
    """Everything the walk reads and writes besides the message.

    Attributes:
        control: int64, slots as named above.
        series: A metric's context with attribute bytes: the wire identities. The bytes lie in the arena of `contexts`.
        contexts: Resources, scopes under them, metrics under those; and attribute bytes, once for all series.
        numbers: NUMBER_ROW, number points.
        histograms: HISTOGRAM_ROW, histogram points.
        exemplars: EXEMPLAR_ROW, where the exemplars of points lie.
        data: uint64, shape (4, k): CSR data of POSITIVE, NEGATIVE, BOUNDS (bits of doubles) and BUCKETS.
        key: uint8, scratch for a metric's key.
    """

    control: Int64Array
    series: Store
    contexts: Store
    numbers: RecordArray
    histograms: RecordArray
    exemplars: RecordArray
    data: UInt64Matrix
    key: UInt8Array
