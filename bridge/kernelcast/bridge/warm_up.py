"""Compile before the first message: half a minute of a core the first time, then it comes from a cache.

What not every site needs (delta points, protobuf) is compiled beside the first messages; who needs it earlier waits.
"""

from collections.abc import Iterable

import numpy as np

from kernelcast.bridge.delta.warm_up import warm_up as warm_up_deltas
from kernelcast.bridge.expose.formats import encode as encode_page
from kernelcast.bridge.expose.negotiate import Format
from kernelcast.bridge.series.columns import MessageColumns
from kernelcast.bridge.series.labels import LabelIndex
from kernelcast.bridge.series.producers import ProducerRules
from kernelcast.bridge.series.slots import SeriesLimits
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.columnar import Decoder, Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals


def warm_up() -> None:
    """Take a number and a histogram through decoder, store and text, and out again."""
    Decoder.warm_up()
    _take_through((Format.TEXT, Format.OPENMETRICS))
    LabelIndex.warm_up()


def warm_up_the_rest() -> None:
    """What `warm_up` has left out."""
    _take_through((Format.PROTOBUF,))
    warm_up_deltas()


def _take_through(formats: Iterable[Format]) -> None:
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
    decoder, store = Decoder(), SeriesStore(SeriesLimits(), producers=ProducerRules())
    messages = MessageColumns(np.zeros(len(bodies), np.int32), *(np.ones(len(bodies), np.int64) for _ in range(3)))
    store.expose(0, exposed=True)
    store.apply(decoder.decode(bodies), messages, decoder)
    store.states()
    store.look_after_producers({})
    snapshot = store.snapshot()
    for format_ in formats:
        for _ in encode_page(snapshot, format_, created=True):
            pass
    store.expire({})
    store.drop_partition(0)


if __name__ == "__main__":
    warm_up()
