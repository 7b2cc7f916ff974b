"""Compile everything before the first message: seconds the first time, then it comes from a cache."""

import numpy as np

from kernelcast.bridge.columns import MessageColumns
from kernelcast.bridge.exposition import text
from kernelcast.bridge.slots import SeriesLimits
from kernelcast.bridge.store import SeriesStore
from kernelcast.columnar import Decoder, Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals


def warm_up() -> None:
    """Take a number and a histogram through decoder, store and exposition, and out again."""
    Decoder.warm_up()
    totals = DurationTotals()
    totals.observe(1_000)
    samples = [
        Sample(kernel.LAUNCHES, (("kernel", "k"),), 1, 1, 1),
        Sample(kernel.PROBE_COVERAGE, (), 1, 0.5),
        Sample(kernel.DURATION, (("kernel", "k"),), 1, totals, 1, detailed=True),
        Sample(kernel.DURATION, (("kernel", "l"),), 1, totals, 1),
    ]
    resource = Resource((("service.instance.id", ""), ("service.name", "")))
    bodies = [export.body for export in encode(resource, samples, scope="")]
    decoder, store = Decoder(), SeriesStore(SeriesLimits())
    messages = MessageColumns(
        np.zeros(len(bodies), np.int32), np.zeros(len(bodies), np.int64), np.ones(len(bodies), np.int64)
    )
    store.expose(0, exposed=True)
    store.apply(decoder.decode(bodies), messages, decoder.identity)
    store.states()
    for _ in text(store.snapshot()):
        pass
    store.drop_partition(0)
