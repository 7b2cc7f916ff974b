"""Every metric that kernelcast emits, as one table of rows.

Services make their metrics from the rows; documents, dashboards, rules and tests read them.
"""

from dataclasses import replace
from types import MappingProxyType
from typing import Final

from kernelcast.wire.catalogue import bridge, exporter, forecast, forecast_scores, inference, kernel, predictor, runtime
from kernelcast.wire.catalogue.devices import (
    accelerator,
    dcgm_exporter,
    device,
    energy,
    gpu,
    health,
    nccl,
    nvlink,
    otel,
    profiling,
    tpu,
)
from kernelcast.wire.catalogue.devices.dcgm_names import CANONICAL_NAMES
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
    *health.ROWS,
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
_SAME_FIELD: Final = {**CANONICAL_NAMES, "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": device.CLOCK_EVENT_REASONS.otlp_name}
OWN_NAMES: Final = MappingProxyType(
    {
        **{canonical: former for former, canonical in _SAME_FIELD.items() if former in BY_OTLP_NAME},
        **{former: canonical for former, canonical in _SAME_FIELD.items() if canonical in BY_OTLP_NAME},
    }
)
"""The catalogue's name of a row by another name that DCGM has for it: its canonical or a former one."""
BY_OTHER_NAME: Final = MappingProxyType(
    {
        **{name: replace(BY_OTLP_NAME[own], prometheus_name=name, otlp_name=name) for name, own in OWN_NAMES.items()},
        **{row.otlp_name: row for row in otel.ROWS},
    }
)
"""Rows under other names, which an exporter writes where it is asked to: others of DCGM's, and OpenTelemetry's."""


def own_name(name: str) -> str:
    """The catalogue's name of a metric, whichever of DCGM's names it has.

    >>> own_name("DCGM_FI_DEV_GPU_TEMP_CELSIUS")
    'DCGM_FI_DEV_GPU_TEMP'
    """
    return OWN_NAMES.get(name, name)


__all__ = [
    "BY_OTHER_NAME",
    "BY_OTLP_NAME",
    "BY_PROMETHEUS_NAME",
    "CATALOGUE",
    "OWN_NAMES",
    "Kind",
    "Metric",
    "own_name",
    "translate",
    "unit_words",
]
