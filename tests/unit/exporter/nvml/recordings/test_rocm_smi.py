"""Outputs of rocm-smi as recordings: AMD GPUs under several versions of ROCm."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.any_format import check_any, read_any
from kernelcast.exporter.nvml.sampling.fields import ROWS
from kernelcast.exporter.nvml.sampling.reading import GpuReading
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.exporter.replay.command import replay
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.errors import TraceError

CAPTURES = Path(os.environ.get("KERNELCAST_SHARED_DATA", Path(__file__).parents[6] / "shared/data")) / "amd"
CARD = {
    "Unique ID": "N/A",
    "Temperature (Sensor edge) (C)": "45.0",
    "sclk clock speed:": "(500Mhz)",
    "Max Graphics Package Power (W)": "211.0",
    "Average Graphics Package Power (W)": "N/A (Secondary die)",
    "pcie clock level": "1 (16.0GT/s x16)",
    "GPU use (%)": "7",
    "PCI Bus": "0000:07:00.0",
    "VRAM Total Memory (B)": "12868124672",
    "VRAM Total Used Memory (B)": "1572757504",
    "Card series": "0x1002",
    "Card SKU": "67XA6S",
}


def gpus(path: Path) -> tuple[GpuReading, ...]:
    sampler = Sampler(RecordedNvml(read_any(path)), SamplerOptions(tuple(ROWS))).start()
    reading = sampler.sample(1)
    assert reading is not None
    sampler.close()
    return reading.gpus


def value(gpu: GpuReading, field: str) -> float | None:
    return gpu.values.get(f"DCGM_FI_DEV_{field}")


def test_a_card_has_the_rows_that_it_prints_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "rocm.json"
    path.write_text(json.dumps({"card0": CARD, "system": {"Driver version": "6.3.6"}}))
    (gpu,) = gpus(path)
    assert (gpu.uuid, gpu.model_name, gpu.device) == ("AMD-0000:07:00.0", "67XA6S", "")
    assert value(gpu, "GPU_TEMP") == 45
    assert value(gpu, "SM_CLOCK") == 500
    assert value(gpu, "POWER_MGMT_LIMIT") == 211
    assert (value(gpu, "PCIE_LINK_GEN"), value(gpu, "PCIE_LINK_WIDTH")) == (4, 16)
    assert value(gpu, "FB_USED") == 1572757504 / 2**20
    assert value(gpu, "POWER_USAGE") is None
    assert gpu.absent[device.POWER_USAGE.otlp_name] == "not_supported"
    assert gpu.absent[device.TOTAL_ENERGY.otlp_name] == "no_data"


def test_several_outputs_in_one_file_are_moments(tmp_path: Path) -> None:
    path = tmp_path / "rocm.json"
    later = CARD | {"GPU use (%)": "99"}
    path.write_text("\n".join(json.dumps({"card0": card}) for card in (CARD, later)))
    assert [moment.at_ns for moment in read_any(path).moments] == [0, 10**9]


@pytest.mark.parametrize("text", ["{", '{"card0": [', '{"cards": 1}', "[1]"])
def test_what_is_no_output_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rocm.json"
    path.write_text(text)
    with pytest.raises(TraceError):
        check_any(path)


def test_partitions_with_the_identifier_of_their_whole_are_told_apart(tmp_path: Path) -> None:
    """ROCm/legacy-rocm-build issue 4750: an MI300X in CPX mode is eight cards."""
    path = tmp_path / "rocm.json"
    cards = {f"card{number}": CARD | {"Unique ID": "0x5f1c"} for number in range(3)}
    path.write_text(json.dumps(cards | {"card3": CARD | {"Unique ID": "0x5f1d"}}))
    assert [gpu.uuid for gpu in gpus(path)] == ["AMD-0x5f1c/0", "AMD-0x5f1c/1", "AMD-0x5f1c/2", "AMD-0x5f1d"]


def test_warnings_before_and_between_the_outputs_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rocm.json"
    warning = "WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status\n\n"
    error = 'Expected integer value from monitor, but got ""\n'
    path.write_text("".join((warning, json.dumps({"card0": CARD}), "\n", error, json.dumps({"card0": CARD}, indent=1))))
    (gpu,) = gpus(path)
    assert value(gpu, "GPU_TEMP") == 45


def test_an_output_that_is_cut_leaves_the_whole_ones(tmp_path: Path) -> None:
    """A loop that is stopped, and one that is started again in the same file."""
    path = tmp_path / "rocm.json"
    whole = json.dumps({"card0": CARD}, indent=1)
    path.write_text("\n".join((whole, whole[:400], whole, whole[:300])))
    recording = read_any(path)
    assert len(recording.moments) == 2
    assert recording.note == "outputs that are cut, and left out: 2"


@pytest.mark.parametrize("text", ['{"gpu_data": [{"gpu": 0}]}', '[\n {"gpu": 0, "usage": "N/A"}]'])
def test_output_of_amd_smi_is_named(tmp_path: Path, text: str) -> None:
    """Its two forms: henrygd/beszel issue 737, ROCm/amdsmi issue 134."""
    path = tmp_path / "amd.json"
    path.write_text(text)
    with pytest.raises(TraceError, match="amd-smi's is not read"):
        read_any(path)


@pytest.mark.skipif(not CAPTURES.exists(), reason=f"{CAPTURES} has the captures")
@pytest.mark.parametrize(
    ("name", "number", "model", "celsius", "watt", "memory_bytes"),
    [
        ("mi100_rocm571", 6, "Arcturus GL-XL [Instinct MI100]", 31, 39, 34342961152),
        ("rx6700xt_rocm430", 1, "67XA6S", 45, 6, 12868124672),
        ("rx6700xt_rocm602", 1, "Navi 22 [Radeon RX 6700/6700 XT / 6800M]", 45, None, 12868124672),
        ("vega-20-WKS-GL-XE", 1, "Radeon Instinct MI50 32GB", 36, 26, 34342961152),
    ],
)
def test_each_recorded_gpu_is_played(
    name: str, number: int, model: str, celsius: float, watt: float | None, memory_bytes: int
) -> None:
    found = gpus(CAPTURES / f"rocm-smi_{name}.json")
    assert len(found) == number
    assert len({gpu.uuid for gpu in found}) == number
    first = found[0]
    assert (first.model_name, value(first, "GPU_TEMP"), value(first, "POWER_USAGE")) == (model, celsius, watt)
    used, free = value(first, "FB_USED"), value(first, "FB_FREE")
    assert used is not None
    assert free is not None
    assert (used + free) * 2**20 == memory_bytes


def test_the_command_writes_a_recording(tmp_path: Path) -> None:
    path, output = tmp_path / "rocm.json", tmp_path / "node.jsonl.gz"
    path.write_text(json.dumps({"card0": CARD}))
    called = CliRunner().invoke(replay, ["capture", str(path), "--output", str(output)])
    assert called.exit_code == 0, called.output
    assert [gpu.uuid for gpu in gpus(output)] == ["AMD-0000:07:00.0"]
