"""Compile what adds deltas up before the first message."""

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA

from kernelcast.bridge.delta.accumulate import Accumulator
from kernelcast.bridge.delta.freeze import freeze, thaw
from kernelcast.bridge.delta.sequence import Order
from kernelcast.bridge.series.columns import MessageColumns
from kernelcast.columnar import Decoder


def warm_up() -> None:
    """Take a sum and two histograms with a gap through an accumulator, a snapshot and back."""
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    number, explicit, exponential = metrics.add(name="a").sum, metrics.add(name="b").histogram, metrics.add(name="c")
    for data in (number, explicit, exponential.exponential_histogram):
        data.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
    for start_ns in (1, 3):
        times = {"start_time_unix_nano": start_ns, "time_unix_nano": start_ns + 1}
        number.data_points.add(as_int=1, **times)
        explicit.data_points.add(count=1, bucket_counts=[0, 1], explicit_bounds=[1.0], **times)
        exponential.exponential_histogram.data_points.add(count=1, zero_count=1, **times)
    decoder, order = Decoder(), Order(0, 1, 1)
    totals, again = Accumulator(order, most_series=3), Accumulator(order, most_series=3)
    messages = MessageColumns(np.zeros(1, np.int32), *(np.ones(1, np.int64) for _ in range(3)))
    totals.accumulate(decoder.decode([request.SerializeToString()]), messages, decoder)
    thaw(again.rows, freeze(totals.rows, totals.rows.in_use(), {0: 0}), {0: 0})
    again.free(again.rows.in_use())
