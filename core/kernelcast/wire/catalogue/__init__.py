"""Every metric that kernelcast emits, as one table of rows.

Services make their metrics from the rows; documents, dashboards, rules and tests read them.
"""

from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue import bridge, exporter, forecast, forecast_scores, inference, kernel, predictor, runtime
from kernelcast.wire.catalogue.devices import (
    accelerator,
    dcgm_exporter,
    device,
    energy,
    gpu,
    nccl,
    nvlink,
    profiling,
    tpu,
)
from kernelcast.wire.catalogue.model import Kind, Metric
from kernelcast.wire.catalogue.naming import translate, unit_words

CATALOGUE: Final[tuple[Metric, ...]] = (
    *device.ROWS,
    *profiling.ROWS,
    *dcgm_exporter.ROWS,
    *gpu.ROWS,
    gpu.GPU_UP,
    gpu.GPU_DETACHED,
    *nvlink.ROWS,
    *nccl.ROWS,
    *tpu.ROWS,
    *accelerator.ROWS,
    *kernel.ROWS,
    *energy.ROWS,
    *inference.ROWS,
    *forecast.ROWS,
    *forecast_scores.ROWS,
    *runtime.ROWS,
    *exporter.ROWS,
    *bridge.ROWS,
    *predictor.ROWS,
)
BY_OTLP_NAME: Final = MappingProxyType({row.otlp_name: row for row in CATALOGUE if row.otlp_name})
BY_PROMETHEUS_NAME: Final = MappingProxyType({row.prometheus_name: row for row in CATALOGUE})

__all__ = ["BY_OTLP_NAME", "BY_PROMETHEUS_NAME", "CATALOGUE", "Kind", "Metric", "translate", "unit_words"]
