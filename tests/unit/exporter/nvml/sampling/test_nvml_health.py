"""A GPU's place in its NVLink fabric, pending repairs, and SRAM errors; each read once a minute.

States of the fabric are those of public reports, in nvidia-smi's words or NVML's numbers:

* leptonai/gpud, pull request 1106: a GB200 with a clique, whose driver reports no health
* kubernetes-sigs/dra-driver-nvidia-gpu, issue 626: registered, and unhealthy
* Azure/azhpc-images, pull request 506: registered with the status Insufficient Resources
* NVIDIA/NVSentinel, issue 883: not started, and in progress
"""

import ctypes
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from tests.support.exporter import nvml_double as double
from tests.support.exporter.nvml_double import divided, gpu, instance, playing

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.any_format import read_any
from kernelcast.exporter.nvml.recordings.record import NotingNvml
from kernelcast.exporter.nvml.recordings.recording import RecordedChanges, Recording
from kernelcast.exporter.nvml.sampling import health as reader
from kernelcast.exporter.nvml.sampling.codes import Codes
from kernelcast.exporter.nvml.sampling.inventory import Gpu
from kernelcast.exporter.nvml.sampling.reading import GpuReading
from kernelcast.exporter.nvml.sampling.sampler import RELIST_NS, Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue.devices import gpu as gpu_rows
from kernelcast.wire.catalogue.devices import health

NOW_NS = 1_000 * 10**9
SHARED = Path(os.environ.get("KERNELCAST_SHARED_DATA", Path(__file__).resolve().parents[6] / "shared" / "data"))
ZERO = str(uuid.UUID(int=0))
SMI = """
==============NVSMI LOG==============

Timestamp                                 : Tue Nov 24 10:00:00 2026
Driver Version                            : 590.48.01
Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA GB200
    GPU UUID                              : GPU-1
    PCI
        Bus Id                            : 00000000:01:00.0
{parts}
"""
REPAIRS = """
    ECC Errors
        Aggregate
            SRAM Threshold Exceeded       : Yes
        Aggregate Uncorrectable SRAM Sources
            SRAM L2                       : 4
            SRAM SM                       : 0
            SRAM Microcontroller          : 1
            SRAM PCIE                     : 0
            SRAM Other                    : 0
        Channel Repair Pending            : Yes
        TPC Repair Pending                : No
        Unrepairable Memory               : Yes
"""
NAMES = (
    "Bandwidth",
    "Route Recovery in progress",
    "Route Unhealthy",
    "Access Timeout Recovery",
    "Incorrect Configuration",
)


def fabric(
    state: str, status: str = "N/A", clique: str = "0", cluster: str = ZERO, summary: str = "N/A", *faults: str
) -> str:
    """A section of nvidia-smi's."""
    lines = [("State", state), ("Status", status), ("CliqueId", clique), ("ClusterUUID", cluster)]
    inner = [("Summary", summary), *zip(NAMES, faults or ("N/A",) * len(NAMES), strict=True)]
    return "\n".join(
        ["    Fabric", *(f"        {name} : {text}" for name, text in lines), "        Health"]
        + [f"            {name} : {text}" for name, text in inner]
    )


def samples_of(path: Path) -> list[Sample]:
    recorded = RecordedNvml(read_any(path))
    return list(NvmlSource(Sampler(recorded), hostname="n", boot_ns=1).start().poll(NOW_NS).samples)


def shown(samples: list[Sample], row: Any, *labels: str) -> dict[tuple[str, ...], Any]:
    found = [(one.value, dict(one.attributes)) for one in samples if one.metric is row and one.value is not None]
    return {tuple(own.get(label, "") for label in labels): value for value, own in found}


def of_smi(tmp_path: Path, *parts: str) -> list[Sample]:
    (tmp_path / "smi.txt").write_text(SMI.format(parts="\n".join(parts)))
    return samples_of(tmp_path / "smi.txt")


def place(samples: list[Sample]) -> tuple[str, ...]:
    ((found, one),) = shown(samples, health.FABRIC, "state", "status", "clique", "cluster_uuid").items()
    assert one == 1
    return found


def faults(samples: list[Sample]) -> dict[str, Any]:
    return {fault: value for (fault,), value in shown(samples, health.FABRIC_FAULT, "fault").items()}


GB200 = "9c6f5af3-53bf-49b5-a436-b66766c413c3"
UNHEALTHY = "dc6e40c4-d722-4357-9ba6-5291dd461278"
FINE = ("Full", "False", "False", "False", "None")


@pytest.mark.parametrize(
    ("section", "found"),
    [
        (fabric("Completed", "Success", "4026", GB200), ("completed", "success", "4026", GB200)),
        (fabric("Completed", "Insufficient Resources"), ("completed", "insufficient_resources", "0", "")),
        (fabric("Completed", "Success"), ("completed", "success", "0", "")),
        (fabric("Not Started", "Success"), ("not_started", "success", "0", "")),
        (fabric("In Progress", "Success"), ("in_progress", "success", "0", "")),
        (fabric("Completed", "Some New Word"), ("completed", "unknown", "0", "")),
    ],
)
def test_the_place_of_a_gpu_in_its_fabric_is_one_series(section: str, found: tuple[str, ...], tmp_path: Path) -> None:
    samples = of_smi(tmp_path, section)
    assert place(samples) == found
    assert faults(samples) == {}
    assert absent(samples)["kernelcast_gpu_fabric_fault_active"] == "not_supported"


def absent(samples: list[Sample]) -> dict[str, str]:
    found = (dict(one.attributes) for one in samples if one.metric is gpu_rows.FIELD_ABSENT and one.value is not None)
    return {own["field"]: own["reason"] for own in found}


def test_faults_that_the_fabric_reports_are_1_and_others_0(tmp_path: Path) -> None:
    """Issue 626 shows summary and bandwidth; the other lines are those of a fabric without a fault."""
    unhealthy = fabric("Completed", "Success", "2", UNHEALTHY, "Unhealthy", *FINE)
    assert faults(of_smi(tmp_path, unhealthy)) == {
        "unhealthy": 1,
        "limited_capacity": 0,
        "degraded_bandwidth": 0,
        "route_recovery": 0,
        "route_unhealthy": 0,
        "access_timeout_recovery": 0,
        "incorrect_configuration": 0,
    }
    words = ("Degraded", "True", "N/A", "False", "Insufficient Nvlinks")
    found = faults(of_smi(tmp_path, fabric("Completed", "Success", "2", UNHEALTHY, "Limited Capacity", *words)))
    assert {fault for fault, value in found.items() if value} == {
        "limited_capacity",
        "degraded_bandwidth",
        "route_recovery",
        "incorrect_configuration",
    }
    assert "route_unhealthy" not in found, "the driver does not report it"


def test_repairs_and_sram_errors_are_shown_and_units_without_errors_are_not(tmp_path: Path) -> None:
    samples = of_smi(tmp_path, REPAIRS)
    assert shown(samples, health.REPAIR_PENDING, "part") == {("channel",): 1, ("tpc",): 0}
    assert shown(samples, health.UNREPAIRABLE) == {(): 1}
    assert shown(samples, health.SRAM_THRESHOLD) == {(): 1}
    assert shown(samples, health.SRAM_ERRORS, "unit") == {("l2",): 4, ("microcontroller",): 1}
    assert absent(samples)["kernelcast_gpu_fabric_info"] == "no_data", "the output has no section of the fabric"


def test_recorded_captures_replay() -> None:
    """Of an H200 and a divided H100 behind switches, and of an L40S and an H100 that are not."""
    paths = {path.stem.split("__")[0]: path for path in (SHARED / "nvidia-smi").glob("*.txt")}
    if not paths:
        pytest.skip(f"no captures in {SHARED / 'nvidia-smi'}")
    for name, path in paths.items():
        samples = samples_of(path)
        assert set(shown(samples, health.REPAIR_PENDING, "part").values()) == {0}
        assert set(shown(samples, health.SRAM_THRESHOLD, "gpu").values()) == {0}
        if name == "nvidia-l40s":
            assert absent(samples)["kernelcast_gpu_fabric_info"] == "not_supported"
            assert absent(samples)["kernelcast_gpu_memory_unrepairable"] == "not_supported"
        else:
            assert set(shown(samples, health.FABRIC, "state", "status", "clique")) == {("completed", "success", "0")}
            assert faults(samples) == {}


@pytest.mark.parametrize(
    ("structure", "version", "theirs"),
    [
        (reader.FabricInfo2, 2, pynvml.nvmlGpuFabricInfo_v2),
        (reader.FabricInfo3, 3, 0x3000028),
        (reader.RepairStatus, 1, 0x100000C),
        (reader.SramErrors, 1, 0x1000068),
        (reader.Unrepairable, 1, 0x1000008),
    ],
)
def test_versions_of_our_structures_are_those_of_nvml_h(
    structure: type[ctypes.Structure], version: int, theirs: int
) -> None:
    assert reader.versioned(structure, version).version == theirs


class Library:
    """A libnvidia-ml behind pynvml: writes into the caller's memory, as far as it knows the version."""

    NVMLError = pynvml.NVMLError

    def __init__(self, answers: Mapping[str, Mapping[int, bytes]]) -> None:
        self.answers = answers

    def __getattr__(self, name: str) -> Any:
        if name == "fill_structure":
            raise AttributeError(name)
        return getattr(pynvml, name)

    def _nvmlGetFunctionPointer(self, call: str) -> Any:  # noqa: N802  pynvml's name
        if call not in self.answers:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

        def function(_gpu: object, into: Any) -> int:
            asked = into._obj.version >> 24
            if asked not in self.answers[call]:
                return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
            content = self.answers[call][asked]
            assert len(content) <= ctypes.sizeof(into._obj), "beyond the caller's memory"
            ctypes.memmove(into, content, len(content))
            return 0

        return function


def fabric_bytes(version: int, *, state: int = 3, status: int = 0, mask: int = 0, summary: int | None = None) -> bytes:
    """The structure, as C lays it out: the state is one byte, three follow."""
    numbers = [version, status, 4026, mask]
    head, *rest = (number.to_bytes(4, "little") for number in numbers)
    content = head + uuid.UUID(GB200).bytes + rest[0] + rest[1] + bytes([state, 0, 0, 0]) + rest[2]
    return content if summary is None else content + bytes([summary, 0, 0, 0])


def read(library: Library) -> reader.GpuHealth:
    errors: list[tuple[str, str]] = []
    made = reader.GpuHealth(library, Codes(library), lambda call, error: errors.append((call, error)))
    made.read([Gpu(SimpleNamespace(), None, "GPU-1", "0")])
    assert not errors
    return made


def test_version_3_has_the_summary_and_a_driver_without_it_answers_version_2() -> None:
    mask = 2 | 1 << 2 | 2 << 4 | 2 << 6 | 1 << 8
    newer = {2: fabric_bytes(0, mask=mask), 3: fabric_bytes(0, mask=mask, summary=3)}
    for answers, faults_shown in ((newer, {"limited_capacity", "route_recovery"}), ({2: newer[2]}, {"route_recovery"})):
        found = read(Library({reader.FABRIC_CALL: answers})).of("GPU-1")
        assert found[0].labels == {"state": "completed", "status": "success", "clique": "4026", "cluster_uuid": GB200}
        assert {one.labels["fault"] for one in found[1:] if one.value} == faults_shown


def test_a_driver_that_is_too_old_for_every_call_costs_no_error() -> None:
    made = read(Library({}))
    assert made.of("GPU-1") == ()
    assert set(made.absent("GPU-1").values()) == {"not_supported"}


@pytest.mark.parametrize("flag", [0, 1])
def test_the_flag_of_unrepairable_memory_is_read_with_and_without_a_version_before_it(flag: int) -> None:
    number = flag.to_bytes(4, "little")
    for content in (number, (0x1000008).to_bytes(4, "little") + number):
        (found,) = read(Library({reader.UNREPAIRABLE_CALL: {1: content}})).of("GPU-1")
        assert found.value == flag


def answering(**more: Any) -> dict[str, Any]:
    place = {"clusterUuid": list(uuid.UUID(GB200).bytes), "status": 0, "cliqueId": 7, "state": 2, "healthMask": 0}
    return gpu(**{reader.FABRIC_CALL: {**place, "healthSummary": 0}, **more})


def test_health_is_read_once_a_minute_and_kept_in_between() -> None:
    nvml = playing(double.node(answering()))
    asked: list[int] = []
    nvml.inject(reader.FABRIC_CALL, lambda: asked.append(1))
    sampler = Sampler(nvml).start()
    began = len(asked)
    for second in range(60):
        (reading,) = sampler.sample(NOW_NS + second * 10**9).gpus
        assert [one.labels.get("state") for one in reading.health] == ["in_progress"]
    assert len(asked) - began == 1
    nvml.answers["0"][reader.FABRIC_CALL]["state"] = 3
    (reading,) = sampler.sample(NOW_NS + RELIST_NS).gpus
    assert [one.labels.get("state") for one in reading.health] == ["completed"]
    assert GpuReading.from_json(reading.to_json()) == reading


def test_an_instance_and_a_lost_gpu_have_no_health() -> None:
    answers = divided(instance("1g.18gb", 3, "MIG-1"))
    answers["0"] |= answering(nvmlDeviceGetMigMode=[1, 1], nvmlDeviceGetMaxMigDeviceCount=7)
    nvml = playing(answers)
    sampler = Sampler(nvml).start()
    whole, part = sampler.sample(NOW_NS).gpus
    assert (len(whole.health), part.health) == (1, ())
    nvml.lost.add("0")
    for reading in sampler.sample(NOW_NS + 10**9).gpus:
        assert reading.health == ()
        assert not any(name.startswith("kernelcast") for name in reading.absent)


def test_a_recording_holds_the_structures_and_plays_them() -> None:
    noting = NotingNvml(playing(double.node(answering(**{reader.UNREPAIRABLE_CALL: {"unrepairableMemory": 1}}))))
    (before,) = Sampler(noting).start().sample(NOW_NS).gpus
    again = RecordedNvml(Recording((RecordedChanges(0, noting.answers),)), clock=lambda: 0)
    (after,) = Sampler(again).start().sample(NOW_NS).gpus
    assert after.health == before.health
    assert len(before.health) == 2
