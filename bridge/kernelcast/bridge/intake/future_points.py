"""The rule for producers whose clocks are ahead; `Intake` applies it to each batch before the store.

A point later than its append time and `bridge.future_tolerance_seconds` is shown at its append time. It keeps its own
time, by which the points of that clock are ordered, and gets the flag AHEAD; the store counts it by producer. It is
never left out. Where Kafka does not stamp messages, the bridge's clock gives the append time, see `MessageBatch.of`.
"""

from typing import Final

import numpy as np

from kernelcast.bridge.tables.columns import AHEAD, Int64Array
from kernelcast.columnar import Decoded

LAST_NS: Final = np.uint64(2**63 - 1)
"""The store's times are int64; later ones, of the year 2262, are set to it."""


def mark_future(decoded: Decoded, append_ms: Int64Array, tolerance_ns: int) -> None:
    """Mark the points of a batch that lie in the future, and remove starts that do.

    Args:
        decoded: The batch; its flags and starts change.
        append_ms: Append time of each message.
        tolerance_ns: How far ahead of its append time a time may be.
    """
    latest_ns = (append_ms * 1_000_000 + tolerance_ns).astype(np.uint64)
    for points in (decoded.numbers, decoded.histograms):
        if not len(points.series) or max(points.time_ns.max(), points.start_ns.max()) <= latest_ns.min():
            continue
        latest = latest_ns[points.message]
        points.flags[points.time_ns > latest] |= AHEAD
        points.start_ns[points.start_ns > latest] = 0
        np.minimum(points.time_ns, LAST_NS, out=points.time_ns)
