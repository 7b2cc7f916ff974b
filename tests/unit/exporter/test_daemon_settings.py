from http.client import BadStatusLine
from pathlib import Path

import pytest
from tests.unit.exporter.nvml_double import FakeGpu, FakeNvml

from kernelcast.exporter.devices import Unsampled, boot_time_ns, open_nvml, wants_samples
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.settings import load
from kernelcast.wire.errors import ConfigurationError, DeviceError, MissingExtraError


def settings(**flags: object) -> ExporterSettings:
    return load("exporter", ExporterSettings, path=None, flags=flags, environ={})


def ignored(_call: str, _error: str) -> None:
    """Errors are not this test's matter."""


def test_defaults_are_those_of_the_documentation() -> None:
    made = settings()
    assert (made.interval_seconds, made.kernels, made.detailed_kernels) == (10.0, 100, 20)
    assert made.web.listen_address == ":19400"
    assert made.socket_path == Path("/run/kernelcast/probe.sock")


def test_all_lifts_the_cap_on_kernels() -> None:
    assert settings(kernels="all").kernels is None
    assert settings(kernels="7").kernels == 7


@pytest.mark.parametrize(("written", "meant"), [("on", "on"), ("off", "off"), ("yes", "on"), ("no", "off")])
def test_yamls_bare_switches_mean_what_they_say(tmp_path: Path, written: str, meant: str) -> None:
    path = tmp_path / "kernelcast.yaml"
    path.write_text(f"exporter:\n  nvml: {written}\n")
    assert load("exporter", ExporterSettings, path=path, flags={}, environ={}).nvml == meant


def test_an_interval_that_is_too_short_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"interval_seconds is 0\.01.*0\.1.*probe"):
        settings(interval_seconds=0.01)


@pytest.mark.parametrize(
    "flags",
    [{"kernels": "0"}, {"kernels": "many"}, {"nvml": "maybe"}, {"hostname_label": "host"}, {"intervals": 3}],
    ids=str,
)
def test_values_that_cannot_be_are_refused(flags: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=f"^{next(iter(flags))} is "):
        settings(**flags)


def test_without_a_driver_auto_goes_on_and_on_does_not() -> None:
    nvml = FakeNvml(driver=False)
    assert open_nvml(settings(), hostname="node1", on_error=ignored, load=lambda: nvml) is None
    with pytest.raises(DeviceError, match="install the NVIDIA driver"):
        open_nvml(settings(nvml="on"), hostname="node1", on_error=ignored, load=lambda: nvml)


def test_without_pynvml_auto_goes_on_and_on_names_the_extra() -> None:
    def missing() -> object:
        raise MissingExtraError("pip install 'kernelcast[exporter]'")

    assert open_nvml(settings(), hostname="node1", on_error=ignored, load=missing) is None
    with pytest.raises(MissingExtraError, match="exporter"):
        open_nvml(settings(nvml="on"), hostname="node1", on_error=ignored, load=missing)


def test_off_does_not_even_load_nvml() -> None:
    def never() -> object:
        raise AssertionError("loaded")

    assert open_nvml(settings(nvml="off"), hostname="node1", on_error=ignored, load=never) is None


def test_device_metrics_are_left_to_a_dcgm_exporter_that_answers() -> None:
    assert not wants_samples(settings(), fetch=lambda _url: b"# HELP DCGM_FI_DEV_SM_CLOCK")
    assert wants_samples(settings(), fetch=lambda _url: b"something else")
    assert wants_samples(settings(device_metrics="on"), fetch=lambda _url: b"DCGM_FI_DEV_SM_CLOCK")
    assert not wants_samples(settings(device_metrics="off"), fetch=lambda _url: b"")


def test_no_answer_on_dcgm_exporters_port_means_there_is_none() -> None:
    def refused(_url: str) -> bytes:
        raise ConnectionRefusedError

    def no_http(_url: str) -> bytes:
        raise BadStatusLine("SSH-2.0-OpenSSH")

    assert wants_samples(settings(), fetch=refused)
    assert wants_samples(settings(), fetch=no_http)
    assert wants_samples(settings(dcgm_exporter_url="ftp://x"))


def test_the_start_of_the_machine_is_the_same_at_each_restart_of_the_exporter(tmp_path: Path) -> None:
    assert len({boot_time_ns() for _ in range(100)}) == 1
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3\nbtime 1795198510\nprocesses 7\n")
    assert boot_time_ns(stat) == 1_795_198_510_000_000_000


def test_gpus_that_are_not_written_are_known_all_the_same() -> None:
    nvml = FakeNvml(FakeGpu("GPU-1", {"temperature": 40}))
    source = open_nvml(settings(), hostname="node1", on_error=ignored, load=lambda: nvml)
    assert source is not None
    unsampled = Unsampled(source)
    assert unsampled.poll(1).samples == ()
    assert [device.uuid for device in source.devices] == ["GPU-1"]
    unsampled.close()
    assert nvml.opened == 0
