"""The daemon on a machine without a driver."""

import pytest
from tests.support.exporter.nvml_double import gpu, node, playing

from kernelcast.exporter.nvml.devices import open_nvml
from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.settings.service import load
from kernelcast.wire.errors import DeviceError


def settings(**flags: object) -> ExporterSettings:
    return load("exporter", ExporterSettings, path=None, flags=flags, environ={})


def ignored(_call: str, _error: str) -> None:
    """Errors are not this test's matter."""


def test_without_a_driver_auto_keeps_looking_and_on_does_not() -> None:
    sampler = IsolatedSampler(
        SamplerOptions(), timeout_seconds=10, nvml=("tests.service.exporter.nvml.nvml_child:absent",)
    )
    try:
        source = open_nvml(settings(), sampler, hostname="node1", on_error=ignored)
        assert source is not None
        assert (source.devices, source.poll(1).samples, source.answers) == ((), (), False)
    finally:
        sampler.close()
    with pytest.raises(DeviceError, match="install the NVIDIA driver"):
        open_nvml(settings(nvml="on"), Sampler(playing(node(gpu()), driver=False)), hostname="node1", on_error=ignored)
