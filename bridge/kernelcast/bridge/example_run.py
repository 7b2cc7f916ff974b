"""Runs example points and messages through the bridge, so that each of its compiled functions is called once.

`warm_up` calls one function here for each part, by its name; numba compiles a function at its first call, or loads it
from disk. Nothing of the results is kept. Each function may run on any thread.
"""

from collections.abc import Iterable

import numpy as np

from kernelcast.bridge.example_points import ExampleSource, example_points
from kernelcast.bridge.expose.formats import encode as encode_page
from kernelcast.bridge.expose.negotiate import Format
from kernelcast.bridge.inputs import IdentitySource
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.columns import MessageColumns
from kernelcast.bridge.tables.labels import LabelIndex
from kernelcast.bridge.tables.producers import ProducerRules
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import Decoded, Decoder, Resource, Sample, encode
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals

__all__ = ["protobuf", "run_messages_through", "series_and_text"]


def series_and_text() -> None:
    """Call the functions that store points and write pages of text: the part `series`."""
    _run_examples((Format.TEXT, Format.OPENMETRICS))
    LabelIndex.warm_up()


def protobuf() -> None:
    """Call the functions that write pages of protobuf."""
    _run_examples((Format.PROTOBUF,))


def _run_examples(formats: Iterable[Format]) -> None:
    decoded, messages = example_points()
    _run_through_store(decoded, messages, ExampleSource(), formats)


def run_messages_through() -> None:
    """Run encoded messages, as Kafka brings them, through every part; `--check` finds functions that others missed."""
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
    decoder = Decoder()
    messages = MessageColumns(np.zeros(len(bodies), np.int32), *(np.ones(len(bodies), np.int64) for _ in range(3)))
    _run_through_store(decoder.decode(bodies), messages, decoder, Format)


def _run_through_store(
    decoded: Decoded, messages: MessageColumns, source: IdentitySource, formats: Iterable[Format]
) -> None:
    store = SeriesStore(SeriesLimits(), producers=ProducerRules())
    store.expose(0, exposed=True)
    store.apply(decoded, messages, source)
    store.states()
    store.judge_producers({})
    snapshot = store.snapshot()
    for format_ in formats:
        for _ in encode_page(snapshot, format_, created=True):
            pass
    store.expire({})
    store.drop_partition(0)
