"""Field tags of io.prometheus.client's messages.

Source: prometheus/client_model, io/prometheus/client/metrics.proto.
"""

from typing import Final

# Tags: field number << 3 | wire type (0 varint, 1 eight bytes, 2 with a length). Field 16 needs two bytes, its tag
# 0x82 being a varint itself: [82 01].
FAMILY_METRIC: Final = 4 << 3 | 2
METRIC_LABEL: Final = 1 << 3 | 2
METRIC_GAUGE: Final = 2 << 3 | 2
METRIC_COUNTER: Final = 3 << 3 | 2
METRIC_UNTYPED: Final = 5 << 3 | 2
METRIC_HISTOGRAM: Final = 7 << 3 | 2
LABEL_NAME: Final = 1 << 3 | 2
LABEL_VALUE: Final = 2 << 3 | 2
SINGLE_VALUE: Final = 1 << 3 | 1
COUNTER_EXEMPLAR: Final = 2 << 3 | 2
COUNTER_START: Final = 3 << 3 | 2
HISTOGRAM_COUNT: Final = 1 << 3
HISTOGRAM_SUM: Final = 2 << 3 | 1
HISTOGRAM_BUCKET: Final = 3 << 3 | 2
HISTOGRAM_SCHEMA: Final = 5 << 3
HISTOGRAM_ZERO_THRESHOLD: Final = 6 << 3 | 1
HISTOGRAM_ZERO_COUNT: Final = 7 << 3
HISTOGRAM_NEGATIVE_SPAN: Final = 9 << 3 | 2
HISTOGRAM_NEGATIVE_DELTA: Final = 10 << 3 | 2
HISTOGRAM_POSITIVE_SPAN: Final = 12 << 3 | 2
HISTOGRAM_POSITIVE_DELTA: Final = 13 << 3 | 2
HISTOGRAM_START: Final = 15 << 3 | 2
HISTOGRAM_EXEMPLAR: Final = (16 << 3 | 2) & 0x7F | 0x80
HISTOGRAM_EXEMPLAR_HIGH: Final = (16 << 3 | 2) >> 7
BUCKET_COUNT: Final = 1 << 3
BUCKET_BOUND: Final = 2 << 3 | 1
BUCKET_EXEMPLAR: Final = 3 << 3 | 2
SPAN_OFFSET: Final = 1 << 3
SPAN_LENGTH: Final = 2 << 3
TIME_SECONDS: Final = 1 << 3
TIME_NANOSECONDS: Final = 2 << 3
