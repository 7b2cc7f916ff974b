import threading
from http.client import BadStatusLine
from pathlib import Path

import pytest
from tests.support.exporter.nvml_double import gpu, node, playing

from kernelcast.exporter.nvml import dcgm_watch, devices
from kernelcast.exporter.nvml.dcgm_watch import DcgmWatch
from kernelcast.exporter.nvml.devices import KnownGpus, boot_id, boot_time_ns, open_nvml
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.exporter.settings import DCGM_EXPORTER_URL, ExporterSettings
from kernelcast.runtime.settings.service import load
from kernelcast.wire.catalogue.devices.gpu import GPU_UP
from kernelcast.wire.errors import ConfigurationError, MissingExtraError


class Silent:
    """Delegates to another source, and fails on demand."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler, self.silent = sampler, False

    def start(self) -> "Silent":
        self.sampler.start()
        return self

    def found(self) -> tuple[GpuReading, ...]:
        return self.sampler.found()

    def sample(self, time_ns: int) -> NodeReading | None:
        return None if self.silent else self.sampler.sample(time_ns)

    def change(self, options: SamplerOptions) -> None:
        self.sampler.change(options)

    def close(self) -> None:
        self.sampler.close()


def up(gpus: KnownGpus, now_ns: int) -> dict[str, object]:
    """Whether each GPU is up."""
    samples = [sample for sample in gpus.poll(now_ns).samples if sample.metric is GPU_UP]
    assert all({"gpu", "Hostname", "modelName"} <= dict(sample.attributes).keys() for sample in samples)
    return {dict(sample.attributes)["UUID"]: sample.value for sample in samples}


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
def test_yamls_bare_on_and_off_are_switches(tmp_path: Path, written: str, meant: str) -> None:
    path = tmp_path / "kernelcast.yaml"
    path.write_text(f"exporter:\n  nvml: {written}\n")
    assert load("exporter", ExporterSettings, path=path, flags={}, environ={}).nvml == meant


def test_an_interval_that_is_too_short_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"^--interval is 0\.01.*0\.1.*probe"):
        settings(interval_seconds=0.01)


@pytest.mark.parametrize(
    "flags",
    [{"kernels": "0"}, {"kernels": "many"}, {"nvml": "maybe"}, {"hostname_label": "host"}, {"intervals": 3}],
    ids=str,
)
def test_values_that_cannot_be_are_refused(flags: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=f"^--{next(iter(flags)).replace('_', '-')} is "):
        settings(**flags)


def test_without_pynvml_auto_continues_and_on_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda _name: None)
    assert open_nvml(settings(), Sampler(playing(node(gpu()))), hostname="node1", on_error=ignored) is None
    with pytest.raises(MissingExtraError, match="exporter"):
        open_nvml(settings(nvml="on"), Sampler(playing(node(gpu()))), hostname="node1", on_error=ignored)


def test_off_does_not_even_start_nvml() -> None:
    nvml = playing(node(gpu()))
    assert open_nvml(settings(nvml="off"), Sampler(nvml), hostname="node1", on_error=ignored) is None
    assert nvml.opened == 0


def looked(page: bytes | Exception, *, url: str = DCGM_EXPORTER_URL) -> bool:
    def fetch(_url: str) -> bytes:
        if isinstance(page, Exception):
            raise page
        return page

    watch = DcgmWatch(url, fetch=fetch)
    watch.check()
    return watch.answers


def test_a_dcgm_exporter_is_recognised_by_its_answer() -> None:
    assert looked(b"# HELP DCGM_FI_DEV_SM_CLOCK")
    assert not looked(b"something else")


def test_no_answer_on_dcgm_exporters_port_means_there_is_none() -> None:
    assert not looked(ConnectionRefusedError())
    assert not looked(BadStatusLine("SSH-2.0-OpenSSH"))
    watch = DcgmWatch("ftp://x")
    watch.check()
    assert not watch.answers


def test_device_metrics_are_left_to_a_dcgm_exporter_whenever_it_comes_and_goes() -> None:
    source = open_nvml(settings(), Sampler(playing(node(gpu()))), hostname="node1", on_error=ignored)
    assert source is not None
    pages = [b"", b"DCGM_FI_DEV_SM_CLOCK", b""]
    watch = DcgmWatch(DCGM_EXPORTER_URL, fetch=lambda _url: pages.pop(0))
    gpus = KnownGpus(source, lambda: not watch.answers)
    shown = []
    for second in range(3):
        watch.check()
        shown.append(bool(gpus.poll(second).samples))
    assert shown == [True, False, True]


def test_the_watch_looks_again_by_itself_and_ends_with_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dcgm_watch, "DCGM_CHECK_SECONDS", 0.0)
    again = threading.Event()
    pages = [b""]

    def fetch(_url: str) -> bytes:
        if not pages:
            again.set()
            return b"DCGM_FI_DEV_SM_CLOCK"
        return pages.pop()

    with DcgmWatch(DCGM_EXPORTER_URL, fetch=fetch) as watch:
        assert again.wait(10)
    assert watch.answers
    assert not [thread for thread in threading.enumerate() if thread.name == "dcgm-watch"]


def test_the_start_of_the_machine_is_the_same_at_each_restart_of_the_exporter(tmp_path: Path) -> None:
    assert len({boot_time_ns() for _ in range(100)}) == 1
    stat = tmp_path / "stat"
    stat.write_text("cpu  1 2 3\nbtime 1795198510\nprocesses 7\n")
    assert boot_time_ns(stat) == 1_795_198_510_000_000_000


def test_a_system_that_hides_its_boot_time_gives_none(tmp_path: Path) -> None:
    """`ProcSubset=pid` of systemd hides /proc/stat."""
    assert boot_time_ns(tmp_path / "none") == 0
    (tmp_path / "stat").write_text("cpu  1 2 3\n")
    assert boot_time_ns(tmp_path / "stat") == 0


def test_the_boot_id_is_the_machines_and_absent_where_the_system_has_none(tmp_path: Path) -> None:
    assert len(boot_id()) == 36
    assert boot_id(tmp_path / "none") == ""


def test_gpus_that_are_not_written_are_still_known() -> None:
    nvml = playing(node(gpu()))
    source = open_nvml(settings(), Sampler(nvml), hostname="node1", on_error=ignored)
    assert source is not None
    gpus = KnownGpus(source, lambda: False)
    assert gpus.poll(1).samples == ()
    assert [device.uuid for device in source.devices] == ["GPU-1"]
    gpus.close()
    assert nvml.opened == 0


def test_a_known_gpu_is_down_when_it_is_gone_and_when_nvml_does_not_answer() -> None:
    nvml = playing(node(gpu(), gpu("GPU-2", 1)))
    sampler = Silent(Sampler(nvml))
    source = open_nvml(settings(), sampler, hostname="node1", on_error=ignored)
    assert source is not None
    gpus = KnownGpus(source, lambda: True)
    assert up(gpus, 1) == {"GPU-1": 1, "GPU-2": 1}
    nvml.lost.add("1")
    assert up(gpus, 2) == {"GPU-1": 1, "GPU-2": 0}
    sampler.silent = True
    assert up(gpus, 3) == {"GPU-1": 0, "GPU-2": 0}
    assert [device.uuid for device in source.devices] == ["GPU-1"], "programs still learn where they run"
    sampler.silent = False
    nvml.lost.clear()
    assert up(gpus, 100 * 10**9) == {"GPU-1": 1, "GPU-2": 1}
