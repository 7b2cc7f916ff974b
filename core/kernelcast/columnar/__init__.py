"""OTLP metrics, encoded with splitting and decoded into arrays."""

from kernelcast.columnar.columns import (
    EXPLICIT,
    HAS_SUM,
    IS_INTEGER,
    NO_RECORDED_VALUE,
    Decoded,
    ExemplarColumns,
    HistogramColumns,
    NumberColumns,
)
from kernelcast.columnar.decoder import Decoder
from kernelcast.columnar.encoder import encode
from kernelcast.columnar.ended import EndedSeries
from kernelcast.columnar.exemplars import PointExemplar, exemplars_of
from kernelcast.columnar.limits import Limits
from kernelcast.columnar.samples import Export, Resource, Sample
from kernelcast.columnar.series import (
    Attributes,
    MetricIdentity,
    PointType,
    ScopeIdentity,
    SeriesIdentity,
    SharedIdentities,
    Temporality,
)

__all__ = [
    "EXPLICIT",
    "HAS_SUM",
    "IS_INTEGER",
    "NO_RECORDED_VALUE",
    "Attributes",
    "Decoded",
    "Decoder",
    "EndedSeries",
    "ExemplarColumns",
    "Export",
    "HistogramColumns",
    "Limits",
    "MetricIdentity",
    "NumberColumns",
    "PointExemplar",
    "PointType",
    "Resource",
    "Sample",
    "ScopeIdentity",
    "SeriesIdentity",
    "SharedIdentities",
    "Temporality",
    "encode",
    "exemplars_of",
]
