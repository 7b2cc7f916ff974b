"""Computes all features of GPUs and of kernels on them from observed metrics: the input of `causes.find`."""

from typing import Final

from kernelcast.predictor.causes import device_features, program_features
from kernelcast.predictor.causes.find import FeatureColumn, FeatureRows
from kernelcast.predictor.causes.observed import Observed
from kernelcast.wire.catalogue.features import Feature

_PARTS: Final = (
    device_features.levels,
    device_features.counters,
    device_features.xid,
    device_features.clock_reasons,
    device_features.clock,
    device_features.power,
    device_features.utilization,
    device_features.heat,
    device_features.memory,
    device_features.links,
    device_features.telemetry,
    program_features.duration,
    program_features.deploy,
    program_features.process,
    program_features.neighbours,
    program_features.peers,
    program_features.fleet,
)


def features(seen: Observed) -> FeatureRows:
    """Compute the features that the observed metrics allow.

    Args:
        seen: Metrics of GPUs, or of one kernel each on GPUs; a metric that is missing leaves its features out.
    """
    columns: dict[Feature, FeatureColumn] = {}
    for part in _PARTS:
        columns |= part(seen)
    if seen.around.beyond is not None:
        columns[Feature.BEYOND_LIMIT] = FeatureColumn.plain(seen.around.beyond)
    return FeatureRows(columns, seen.labels, seen.end_ns)
