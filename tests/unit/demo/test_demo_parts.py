import io
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from kernelcast.cli.demo import summary, view
from kernelcast.cli.demo.children import DemoProcess
from kernelcast.cli.demo.progress import StartProgress
from kernelcast.cli.demo.run import Demo, DemoOptions
from kernelcast.cli.demo.sources import DemoSource, choose, find_gpu
from kernelcast.cli.demo.state import DemoState
from kernelcast.cli.demo.workspace import Endpoints, Workspace
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.view.page import KernelStats, read
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.histogram import CLASSIC_BOUNDS_SECONDS, DurationTotals, classic_counts

EXPOSITION = """\
# TYPE cuda_kernel_launches counter
cuda_kernel_launches_total{Hostname="n0",UUID="U",gpu="0",kernel="gemm#1",kernel_class="compute",program="p"} 30
cuda_kernel_launches_total{Hostname="n0",UUID="U",gpu="0",kernel="nccl#2",kernel_class="collective",program="p"} 10
cuda_kernel_duration_seconds_sum{Hostname="n0",UUID="U",gpu="0",kernel="gemm#1",program="p"} 0.25
cuda_kernel_duration_seconds_sum{Hostname="n0",UUID="U",gpu="0",kernel="nccl#2",program="p"} 0.75
cuda_kernel_duration_seconds_count{Hostname="n0",UUID="U",gpu="0",kernel="nccl#2",program="p"} 10
DCGM_FI_DEV_GPU_TEMP{Hostname="n0",gpu="0",source="simulated"} 71
kernelcast_forecast_value{metric="DCGM_FI_DEV_GPU_TEMP",gpu="0",horizon="300",bound="mean"} 80
kernelcast_degradation_probability_ratio{metric="DCGM_FI_DEV_GPU_TEMP",Hostname="n0",gpu="0",cause="thermal"} 0.93
go_gc_duration_seconds 1
"""


class FakeNvml:
    """Answers as `pynvml` does on a node with some GPUs, or none."""

    class NVMLError(Exception):
        pass

    def __init__(self, count: int | None) -> None:
        self._count = count

    def nvmlInit(self) -> None:  # noqa: N802  pynvml's name
        if self._count is None:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802  pynvml's name
        return self._count or 0

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802  pynvml's name
        return index

    def nvmlDeviceGetName(self, _handle: int) -> str:  # noqa: N802  pynvml's name
        return "NVIDIA H200"


def test_a_real_gpu_is_found_and_named() -> None:
    assert find_gpu(FakeNvml(2)) == (True, "2 x NVIDIA H200")


@pytest.mark.parametrize(("count", "reason"), [(0, "sees no GPU"), (None, "Driver Not Loaded")])
def test_without_a_gpu_the_reason_is_printed(count: int | None, reason: str) -> None:
    found, said = find_gpu(FakeNvml(count))
    assert not found
    assert reason in said


def test_a_simulation_and_a_replay_are_labelled_as_such(tmp_path: Path) -> None:
    recording = tmp_path / "trace.json"
    recording.touch()
    assert "SIMULATED, not a real GPU" in choose("simulate").banner
    replay = choose(f"kineto:{recording}")
    assert replay.banner.startswith("REPLAY of ")
    assert replay.label == "replayed"


@pytest.mark.parametrize(
    "text",
    [
        "gpu",
        "kineto",
        "kineto:",
        "kineto:/none/x.json",
        "kineto:~no-such-user/x",
        f"nsys:{'x' * 300}",
        "simulate:x",
        "",
    ],
)
def test_a_source_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--source"):
        choose(text)


def test_the_exposition_is_read_into_kernels_gpus_and_predictions() -> None:
    snapshot = read(EXPOSITION)
    assert snapshot.launches == 40
    assert math.isclose(snapshot.kernel_seconds, 1.0)
    assert [name for name, _ in snapshot.hottest(5)] == ["nccl#2", "gemm#1"]
    assert snapshot.gpus == {("n0", "0"): {"DCGM_FI_DEV_GPU_TEMP": 71.0}}
    assert snapshot.forecasts == 1
    assert snapshot.degradations[0][1] == 0.93


def test_quantiles_are_within_a_bucket_of_the_raw_values() -> None:
    totals, values = DurationTotals(), [1000 * (number + 1) for number in range(1000)]
    for value in values:
        totals.observe(value)
    stats = KernelStats()
    stats.buckets.update(zip(CLASSIC_BOUNDS_SECONDS, classic_counts(0, totals.buckets.items()), strict=True))
    stats.buckets[math.inf] = totals.count
    for quantile in (0.5, 0.99):
        found, exact = stats.quantile_seconds(quantile), values[int(quantile * 1000) - 1] / 1e9
        assert found is not None
        assert exact / 2 <= found <= exact * 2
    assert KernelStats().quantile_seconds(0.5) is None


def state(tmp_path: Path, kind: str = "simulate") -> DemoState:
    endpoints = Endpoints("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3")
    filled = DemoState(DemoSource(kind, "asked for"), Workspace(tmp_path, endpoints, "127.0.0.1:9"), "embedded")
    filled.now_seconds = 100.0
    filled.recent.add(100.0, read(EXPOSITION))
    filled.recent.title, filled.recent.note = endpoints.page, filled.source.banner
    return filled


def test_the_screen_shows_kernels_gpus_predictions_and_addresses(tmp_path: Path) -> None:
    console = Console(width=140, record=True, file=(tmp_path / "screen").open("w"))
    console.print(view.render(state(tmp_path)))
    text = console.export_text()
    console.file.close()
    for expected in ("SIMULATED", "nccl#2", "71", "93 %", "thermal", "http://127.0.0.1:2/", "q quit"):
        assert expected in text


def test_the_summary_says_what_came_of_it(tmp_path: Path) -> None:
    result = summary.summarise(state(tmp_path), {"kernels": 40}, {"bridge": 0})
    target = tmp_path / "summary.json"
    summary.write(result, target)
    assert '"launches": 40' in target.read_text()
    assert any("40 launches under 2 names" in line for line in summary.sentences(result))


def test_the_summary_names_what_was_predicted(tmp_path: Path) -> None:
    filled = state(tmp_path)
    labels = {"cause": "kernel_slowdown", "program": "example", "kernel": "sweep", "metric": "duration"}
    filled.peak_degradations[("example",)] = {"labels": labels, "probability": 0.9}
    lines = summary.sentences(summary.summarise(filled, None, {}))
    assert "predicted: kernel_slowdown of example sweep duration" in lines


def test_a_name_of_a_recording_controls_no_terminal(tmp_path: Path) -> None:
    filled = state(tmp_path)
    filled.recent.add(101.0, read('cuda_kernel_duration_seconds_sum{kernel="a\x1b[2Jb",program="p"} 5\n'))
    lines = [*summary.sentences(summary.summarise(filled, None, {})), view.plain(filled)]
    assert any("a [2Jb" in line for line in lines)
    assert not any("\x1b" in line for line in lines)


def demo(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Demo, list[str]]:
    """A demo, and the names of the processes that it starts, in place of them."""
    started: list[str] = []

    def start(_: Demo, name: str, *_args: object, **_options: object) -> DemoProcess:
        started.append(name)
        return DemoProcess(name, (), directory / "log")

    monkeypatch.setattr(Demo, "_start", start)
    options = DemoOptions(DemoSource("simulate", "asked for"), servers=False)
    return Demo(options, directory, [f"127.0.0.1:{port}" for port in range(1, 6)], "127.0.0.1:9", "embedded"), started


@pytest.mark.parametrize("left", ['{"kernels": 40}', "", "{"])
def test_counts_of_an_earlier_demo_in_the_same_folder_are_not_of_this_one(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "published.json").write_text(left)
    run, started = demo(tmp_path, monkeypatch)
    run._start_source()
    assert started == ["source", "example"]
    assert run._published() is None
    (tmp_path / "published.json").write_text("{")  # of a source that was killed while it wrote
    assert run._published() is None


@pytest.mark.parametrize("interrupted", [False, True])
def test_nothing_starts_beside_a_bridge_that_compiles_nor_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, interrupted: bool
) -> None:
    run, started = demo(tmp_path, monkeypatch)
    shutdown, first = Shutdown(), ["bridge", "exporter"]

    def is_ready(_: Demo, name: str, _deadline: float) -> bool:
        assert started == first, f"{name} is not ready yet"
        if interrupted:
            shutdown.request()
        return not interrupted

    monkeypatch.setattr(Demo, "_is_ready", is_ready)
    (tmp_path / "bridge.log").touch()
    run._start_all(shutdown, StartProgress(io.StringIO()))
    assert started == first + ([] if interrupted else ["predictor", "source", "example"])


def test_the_first_picture_does_not_wait_for_the_predictor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = demo(tmp_path, monkeypatch)
    shutdown, asked = Shutdown(), iter([False, False, True])
    shown: list[object] = []
    monkeypatch.setattr(Demo, "_is_ready", lambda *_: next(asked))
    monkeypatch.setattr(shutdown, "wait", lambda _seconds: None)
    gatherer = SimpleNamespace(gather=lambda elapsed_seconds: elapsed_seconds)
    run._watch_until_predicting(gatherer, shutdown, shown.append)  # type: ignore[arg-type]
    assert shown == [0.0, 0.0]
