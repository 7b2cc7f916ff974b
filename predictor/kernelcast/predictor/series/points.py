"""Points of one role as columns: `WindowFeed` makes them from a decoded batch and writes them into the windows."""

from dataclasses import dataclass

from kernelcast.predictor.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class Points:
    """Points of one role; arrays of shape (n,), each row at most once.

    Attributes:
        rows: Rows of the windows.
        time_ns, start_ns: When measured, and since when cumulative; Unix nanoseconds.
        value: The number; of a histogram its sum.
        count: Of a histogram its count; else 0.
    """

    rows: Ints
    time_ns: Ints
    start_ns: Ints
    value: Floats
    count: Floats
