"""Slowdown temperatures of GPU models: dcgm-exporter's default metrics have none, so a temperature had no limit.

Only models with a source. `predictor.prometheus.slowdown_temperatures` adds others, and wins. `Source` writes the
temperature as the series `DCGM_FI_DEV_SLOWDOWN_TEMP` of each GPU that exports none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class SlowdownTemperature:
    """Temperature at which a model begins to slow down in hardware.

    Attributes:
        celsius: The temperature.
        source: Where it was read.
    """

    celsius: float
    source: str


_CAPTURES: Final = "nvidia-smi -q in utkuozdemir/nvidia_gpu_exporter, internal/captures"
_MARGIN: Final = "temperature + GPU T.Limit Temp - GPU Slowdown T.Limit Temp"

SLOWDOWN_TEMPERATURES: Final[Mapping[str, SlowdownTemperature]] = MappingProxyType(
    {
        "NVIDIA H100 80GB HBM3": SlowdownTemperature(
            89.0, f"nvmlDeviceGetTemperatureThreshold, driver 580.159.04, measured by this project; {_CAPTURES}"
        ),
        "NVIDIA H200": SlowdownTemperature(89.0, f"{_CAPTURES}, driver 590.48.01: {_MARGIN}, 28 + 59 + 2"),
        "NVIDIA L40S": SlowdownTemperature(90.0, f"{_CAPTURES}, driver 595.80: {_MARGIN}, 64 + 24 + 2"),
        "NVIDIA A100-SXM4-80GB": SlowdownTemperature(
            89.0, "nvidia-smi -q of 2023-03-04, driver 525.60.13, in a public log of a training run on Jean Zay"
        ),
        "NVIDIA A10G": SlowdownTemperature(
            95.0, "nvidia-smi -q of 2025-05-22, driver 535.247.01, in a public issue about DCGM"
        ),
        "Tesla V100-SXM2-32GB": SlowdownTemperature(
            87.0, "nvidia-smi -q in NVIDIA/nvidia-docker#1076 and NVIDIA/nvidia-container-toolkit#1482"
        ),
        "Tesla T4": SlowdownTemperature(93.0, "nvidia-smi -q of 2023-07-05, driver 530.30.02, in a public log"),
    }
)
"""By `modelName`."""


def slowdown_temperature(model: str, own: Mapping[str, float]) -> tuple[float, str] | None:
    """The slowdown temperature of a model in degrees Celsius, and its origin; None for one that nobody told us.

    Args:
        model: The label `modelName`.
        own: Those of the settings, by model.

    >>> slowdown_temperature("NVIDIA H200", {})
    (89.0, "kernelcast's table of models: NVIDIA H200")
    >>> slowdown_temperature("NVIDIA H200", {"NVIDIA H200": 85.0})
    (85.0, 'predictor.prometheus.slowdown_temperatures: NVIDIA H200')
    """
    if model in own:
        return own[model], f"predictor.prometheus.slowdown_temperatures: {model}"
    known = SLOWDOWN_TEMPERATURES.get(model)
    return (known.celsius, f"kernelcast's table of models: {model}") if known is not None else None
