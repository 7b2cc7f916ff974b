"""Series of real GPUs, as nvidia-smi showed them under load, field by field."""

import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.nvidia_smi import read_capture
from kernelcast.exporter.nvml.sampling.fields import ROWS
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue.devices.device import OPT_IN_LABELS
from kernelcast.wire.errors import TraceError
from kernelcast.wire.identity import REPLAYED

SHARED = Path(os.environ.get("KERNELCAST_SHARED_DATA", Path(__file__).parents[6] / "shared/data"))
CAPTURES = SHARED / "nvidia-smi"
FILES = ("nvidia-h200__590.48.01.txt", "nvidia-h100-mig__590.48.01.txt", "nvidia-l40s__595.80.txt")
H100 = SHARED / "gpu/h100-2026-11-27/captures.tar.gz"
OF_THE_H100 = tuple(f"captures/{number}-{when}.txt" for number in range(3) for when in ("before", "after"))
SECOND_NS = 1_000_000_000
SHOWN = {
    "SM_CLOCK": ("Clocks", "SM"),
    "MEM_CLOCK": ("Clocks", "Memory"),
    "GPU_TEMP": ("Temperature", "GPU Current Temp"),
    "MEMORY_TEMP": ("Temperature", "Memory Current Temp"),
    "POWER_USAGE": ("GPU Power Readings", "Average Power Draw"),
    "POWER_MGMT_LIMIT": ("GPU Power Readings", "Current Power Limit"),
    "GPU_UTIL": ("Utilization", "GPU"),
    "MEM_COPY_UTIL": ("Utilization", "Memory"),
    "ENC_UTIL": ("Utilization", "Encoder"),
    "DEC_UTIL": ("Utilization", "Decoder"),
    "FB_FREE": ("FB Memory Usage", "Free"),
    "FB_USED": ("FB Memory Usage", "Used"),
    "FB_RESERVED": ("FB Memory Usage", "Reserved"),
    "PCIE_REPLAY_COUNTER": ("PCI", "Replays Since Reset"),
    "CORRECTABLE_REMAPPED_ROWS": ("Remapped Rows", "Correctable Error"),
    "UNCORRECTABLE_REMAPPED_ROWS": ("Remapped Rows", "Uncorrectable Error"),
    "RETIRED_SBE": ("Retired Pages", "Single Bit ECC"),
    "RETIRED_DBE": ("Retired Pages", "Double Bit ECC"),
}

SHOWN_LABELS = {
    "DCGM_FI_DEV_BRAND": "Product Brand",
    "DCGM_FI_DEV_SERIAL": "Serial Number",
    "DCGM_FI_DEV_VBIOS_VERSION": "VBIOS Version",
    "DCGM_FI_DEV_INFOROM_IMAGE_VER": "Image Version",
    "DCGM_FI_DEV_OEM_INFOROM_VER": "OEM Object",
    "DCGM_FI_DEV_ECC_INFOROM_VER": "ECC Object",
    "DCGM_FI_DEV_POWER_INFOROM_VER": "Power Management Object",
}

LINK_ROWS = (
    "PCIE_LINK_GEN",
    "PCIE_LINK_WIDTH",
    "PCIE_MAX_LINK_GEN",
    "PCIE_MAX_LINK_WIDTH",
    "PSTATE",
    "FAN_SPEED",
    "GET_GPU_RECOVERY_ACTION",
)


def outputs(path: Path) -> list[str]:
    """Each `nvidia-smi -q` of a capture."""
    return [part.partition("\n####")[0] for part in path.read_text().split("NVSMI LOG==============")[1:]]


def shown(output: str, section: str, name: str) -> float | None:
    """A number as in the text; None for N/A."""
    own = re.search(rf"^    {section} *\n((?: {{8}}.*\n)+)", output, re.MULTILINE)
    if not own:
        return None
    found = re.search(rf"^ +{name} +: (.*)$", own[1], re.MULTILINE)
    number = re.match(r"\d+(\.\d+)?", found[1]) if found else None
    return float(number[0]) if number else None


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture(params=(*FILES, *OF_THE_H100), ids=lambda name: name.partition("__")[0])
def capture(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name = str(request.param)
    held = CAPTURES / name if name in FILES else H100
    if not held.exists():
        pytest.skip(f"{held} is not on this machine; set KERNELCAST_SHARED_DATA to the folder of recordings")
    if name in FILES:
        return held
    with tarfile.open(held) as archive:
        archive.extract(name, tmp_path, filter="data")
    return tmp_path / name


def played(path: Path) -> Iterator[tuple[str, tuple[Sample, ...]]]:
    """Each output and the series that it gives."""
    recording, clock = read_capture(path), Clock()
    source = NvmlSource(
        Sampler(RecordedNvml(recording, clock=clock), SamplerOptions(rows=tuple(ROWS), labels=tuple(OPT_IN_LABELS))),
        hostname="node1",
        boot_ns=SECOND_NS,
        source=REPLAYED,
    ).start()
    for output, moment in zip(outputs(path), recording.moments, strict=True):
        clock.now_ns = moment.at_ns
        # Beyond the time after which the list of GPUs is read again.
        samples = source.poll(1_000 * SECOND_NS + 100 * moment.at_ns).samples
        yield output, tuple(sample for sample in samples if sample.value is not None)
    source.close()


def device_rows(samples: tuple[Sample, ...], gi_id: str = "") -> dict[str, float]:
    found = {}
    for sample in samples:
        name = sample.metric.prometheus_name
        if name.startswith("DCGM_FI_") and dict(sample.attributes).get("GPU_I_ID", "") == gi_id:
            assert isinstance(sample.value, int | float)
            found[name.removeprefix("DCGM_FI_DEV_")] = sample.value
    return found


def test_every_row_that_nvidia_smi_shows_has_the_value_that_it_shows(capture: Path) -> None:
    for output, samples in played(capture):
        rows = device_rows(samples)
        printed = {row: shown(output, *where) for row, where in SHOWN.items()}
        assert {row: rows[row] for row in printed if row in rows} == {
            row: value for row, value in printed.items() if value is not None
        }
        assert sum(value is not None for value in printed.values()) >= 10


def test_what_nvidia_smi_does_not_know_is_absent_with_a_reason(capture: Path) -> None:
    for output, samples in played(capture):
        absent = {
            dict(sample.attributes)["field"]: dict(sample.attributes)["reason"]
            for sample in samples
            if sample.metric.prometheus_name == "kernelcast_gpu_field_absent"
            and "GPU_I_ID" not in dict(sample.attributes)
        }
        rows = device_rows(samples)
        divided = "Pending                                        : Enabled" in output.partition("MIG Mode")[2][:150]
        for row, where in SHOWN.items():
            if shown(output, *where) is None:
                assert absent[f"DCGM_FI_DEV_{row}"] == ("mig" if divided else "not_supported")
                assert row not in rows
        assert absent["DCGM_FI_PROF_DRAM_ACTIVE"] == "no_data"


def test_series_carry_the_gpus_names_and_say_that_they_are_replayed(capture: Path) -> None:
    for output, samples in played(capture):
        assert {dict(sample.attributes)["source"] for sample in samples} == {"replayed"}
        for sample in (one for one in samples if one.metric.prometheus_name.startswith("DCGM_FI_")):
            labels = dict(sample.attributes)
            assert f": {labels['UUID']}\n" in output
            assert f": {labels['modelName']}\n" in output
            assert f": {labels['pci_bus_id']}\n" in output
            assert f": {labels['DCGM_FI_DRIVER_VERSION']}\n" in output


def test_instances_have_the_memory_that_nvidia_smi_shows(capture: Path) -> None:
    for output, samples in played(capture):
        for block in output.split("    MIG Device\n")[1:]:
            (gi_id,) = re.findall(r"GPU Instance ID +: (\d+)", block)[:1]
            memory = block.partition("Shared FB Memory Usage")[2]
            sizes = {name: float(re.findall(rf"{name} +: (\d+) MiB", memory)[0]) for name in ("Used", "Free")}
            rows = device_rows(samples, gi_id)
            assert (rows["FB_USED"], rows["FB_FREE"]) == (sizes["Used"], sizes["Free"])


def test_processes_have_the_memory_that_nvidia_smi_shows(capture: Path) -> None:
    for output, samples in played(capture):
        listed = output.partition("    Processes")[2]
        printed = re.findall(r"Process ID +: (\d+)\n(?:.*\n){2} +Used GPU Memory +: (\d+) MiB", listed)
        rows = {
            dict(sample.attributes)["pid"]: sample.value
            for sample in samples
            if sample.metric.prometheus_name == "kernelcast_gpu_process_memory_bytes"
        }
        assert rows == {pid: int(mebibytes) * 2**20 for pid, mebibytes in printed}


def process_rows(samples: tuple[Sample, ...], label: str) -> dict[str, object]:
    """A label's value, or the memory in bytes, by pid."""
    rows = [one for one in samples if one.metric.prometheus_name == "kernelcast_gpu_process_memory_bytes"]
    return {
        dict(one.attributes)["pid"]: one.value if label == "value" else dict(one.attributes).get(label) for one in rows
    }


def test_processes_of_two_compute_instances_in_one_gpu_instance_are_counted_once(tmp_path: Path) -> None:
    """No capture at hand has two; this is the one with MIG, whose GPU instance 2 gets another compute instance."""
    original = CAPTURES / "nvidia-h100-mig__590.48.01.txt"
    if not original.exists():
        pytest.skip(f"{original} is not on this machine; set KERNELCAST_SHARED_DATA to the folder of recordings")
    instance = re.compile(r"    MIG Device\n {8}Index.*\n {8}GPU Instance ID +: 2\n(?: {8}.*\n)+")
    text, added = instance.subn(_with_a_second_compute_instance, original.read_text())
    assert added >= 2
    text = re.sub(r"(Compute instance ID +: )0(\n +Process ID +: 21181\n)", r"\g<1>1\2", text)
    path = tmp_path / "two.txt"
    path.write_text(text)
    outputs_with_processes = 0
    for output, samples in played(path):
        printed = re.findall(r"Process ID +: (\d+)\n(?:.*\n){2} +Used GPU Memory +: (\d+) MiB", output)
        assert process_rows(samples, "value") == {pid: int(mebibytes) * 2**20 for pid, mebibytes in printed}
        instances = {dict(one.attributes).get("GPU_I_ID") for one in samples}
        assert "2" in instances or not printed
        outputs_with_processes += bool(printed)
    assert outputs_with_processes


def _with_a_second_compute_instance(block: re.Match[str]) -> str:
    return block[0] + re.sub(r"(Compute Instance ID +: )0", r"\g<1>1", block[0])


def test_processes_have_the_names_that_nvidia_smi_shows(capture: Path) -> None:
    for output, samples in played(capture):
        listed = output.partition("    Processes")[2]
        printed = re.findall(r"Process ID +: (\d+)\n.*\n +Name +: (?:.*/)?(\S+)\n", listed)
        assert process_rows(samples, "process_name") == dict(printed)


@pytest.mark.parametrize("shown_name", ["N/A", "[Not Found]", "[Insufficient Permissions]", "-"])
def test_a_process_whose_name_nvidia_smi_does_not_know_has_none(shown_name: str, tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text(
        "==============NVSMI LOG==============\n\nGPU 00000000:01:00.0\n"
        "    Product Name                          : NVIDIA L40S\n"
        "    GPU UUID                              : GPU-1\n"
        "    Processes\n"
        "        GPU instance ID                   : N/A\n"
        "        Process ID                        : 1\n"
        "            Type                          : C\n"
        f"            Name                          : {shown_name}\n"
        "            Used GPU Memory               : 5 MiB\n"
    )
    ((_, samples),) = played(path)
    assert process_rows(samples, "value") == {"1": 5 * 2**20}
    assert process_rows(samples, "process_name") in ({"1": ""}, {"1": None})


def test_the_power_of_drivers_535_to_565_has_another_name(tmp_path: Path) -> None:
    path = tmp_path / "550.txt"
    path.write_text(
        "==============NVSMI LOG==============\n\nGPU 00000000:01:00.0\n"
        "    GPU UUID                              : GPU-1\n"
        "    GPU Power Readings\n"
        "        Power Draw                        : 111.38 W\n"
        "        Current Power Limit               : 700.00 W\n"
    )
    ((_, samples),) = played(path)
    assert device_rows(samples)["POWER_USAGE"] == 111.38


def test_clock_event_reasons_are_those_that_nvidia_smi_calls_active(capture: Path) -> None:
    for output, samples in played(capture):
        own = re.search(r"^    Clocks Event Reasons\n((?: {8}.*\n)+)", output, re.MULTILINE)
        assert own
        active = {name.lower().replace(" ", "_") for name in re.findall(r"^ +(.*?) +: Active$", own[1], re.MULTILINE)}
        rows = {
            dict(sample.attributes)["reason"].removeprefix("gpu_")
            for sample in samples
            if sample.metric.prometheus_name == "kernelcast_gpu_clock_event_active" and sample.value
        }
        assert rows == active


def test_link_state_and_recovery_action_are_those_of_the_capture(capture: Path) -> None:
    for output, samples in played(capture):
        link = output.partition("GPU Link Info")[2].partition("Bridge Chip")[0]
        max_generation, generation, *_ = (int(text) for text in re.findall(r": (\d+)$", link, re.MULTILINE))
        max_width, width = (int(text) for text in re.findall(r": (\d+)x$", link, re.MULTILINE))
        rows = device_rows(samples)
        found = [rows.get(name) for name in LINK_ROWS]
        assert found == [generation, width, max_generation, max_width, 0, None, 0]


def test_labels_of_the_table_have_the_text_that_nvidia_smi_shows(capture: Path) -> None:
    for output, samples in played(capture):
        shown_labels = {
            label: found[1]
            for label, name in SHOWN_LABELS.items()
            if (found := re.search(rf"^ +{name} +: (.*)$", output, re.MULTILINE)) and found[1] != "N/A"
        }
        assert len(shown_labels) >= 6
        for sample in (one for one in samples if one.metric.prometheus_name.startswith("DCGM_FI_")):
            labels = dict(sample.attributes)
            assert {name: labels[name] for name in OPT_IN_LABELS if name in labels} == shown_labels


DAMAGED = """
==============NVSMI LOG==============

Timestamp                                 : Tue Nov 24 10:00:00 2026
GPU 00000000:01:00.0
    GPU UUID                              : GPU-1
    MIG Device
        GPU Instance ID                   : {gi_id}
    Processes
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : {pid}
"""


def test_an_instance_without_a_number_is_an_error_of_the_capture(tmp_path: Path) -> None:
    path = tmp_path / "capture.txt"
    path.write_text(DAMAGED.format(gi_id="N/A", pid="1"))
    with pytest.raises(TraceError, match="nvidia-smi -q"):
        read_capture(path)
