"""OTLP metrics, encoded with splitting and decoded into arrays.

A name's module is imported when the name is first used: a process that only encodes, like the exporter on every GPU
node, imports neither numpy nor the decoder's compiler, which take 70 MiB. Source: PEP 562.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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
    from kernelcast.columnar.decoding.decoder import Decoder
    from kernelcast.columnar.decoding.exemplars import PointExemplar, exemplars_of
    from kernelcast.columnar.decoding.limits import DecoderLimits
    from kernelcast.columnar.encoding.encoder import encode
    from kernelcast.columnar.encoding.ended import EndedSeries
    from kernelcast.columnar.encoding.samples import Export, Resource, Sample
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
    "DecoderLimits",
    "EndedSeries",
    "ExemplarColumns",
    "Export",
    "HistogramColumns",
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

_COLUMNS: Final = (
    "EXPLICIT",
    "HAS_SUM",
    "IS_INTEGER",
    "NO_RECORDED_VALUE",
    "Decoded",
    "ExemplarColumns",
    "HistogramColumns",
    "NumberColumns",
)
_SERIES: Final = (
    "Attributes",
    "MetricIdentity",
    "PointType",
    "ScopeIdentity",
    "SeriesIdentity",
    "SharedIdentities",
    "Temporality",
)
_MODULES: Final = {
    **dict.fromkeys(_COLUMNS, "columns"),
    **dict.fromkeys(_SERIES, "series"),
    **dict.fromkeys(("Export", "Resource", "Sample"), "encoding.samples"),
    **dict.fromkeys(("PointExemplar", "exemplars_of"), "decoding.exemplars"),
    "Decoder": "decoding.decoder",
    "EndedSeries": "encoding.ended",
    "DecoderLimits": "decoding.limits",
    "encode": "encoding.encoder",
}
"""Name to the module that has it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
