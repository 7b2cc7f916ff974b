"""Device metrics as a user sees them: the series of a node whose NVML a test plays."""

from collections import Counter
from typing import Any

import pynvml
import pytest
from tests.support.exporter import nvml_double as double
from tests.support.exporter.nvml_double import NOT_SUPPORTED, divided, field, gpu, instance, node, playing

from kernelcast.columnar import Sample, encode
from kernelcast.exporter.delivery.publish import resource_of
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.sampling.fields import ROWS
from kernelcast.exporter.nvml.sampling.sampler import FIRST_RETRY_NS, RELIST_NS, Sampler, SamplerOptions
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue import Kind
from kernelcast.wire.catalogue.devices import accelerator, device, profiling
from kernelcast.wire.catalogue.devices import gpu as rows
from kernelcast.wire.errors import DeviceError

SECOND_NS = 1_000_000_000
NOW_NS = 1_000 * SECOND_NS
LATER_NS = NOW_NS + SECOND_NS
BOOT_NS = 100 * SECOND_NS
EVERYTHING = SamplerOptions(rows=tuple(ROWS))


class Errors:
    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()

    def __call__(self, call: str, _error: str) -> None:
        self.counted[call] += 1


def source(nvml: RecordedNvml, errors: Errors | None = None, options: SamplerOptions | None = None) -> NvmlSource:
    return NvmlSource(Sampler(nvml, options), hostname="node1", boot_ns=BOOT_NS, on_error=errors or Errors()).start()


def dcgm(samples: tuple[Sample, ...], uuid: str = "GPU-1", gi_id: str = "") -> dict[str, Any]:
    """DCGM's rows of one GPU or instance, without their prefix."""
    found = {}
    for sample in samples:
        labels = dict(sample.attributes)
        name = sample.metric.prometheus_name
        if (
            sample.value is not None
            and name.startswith("DCGM_FI_")
            and labels["UUID"] == uuid
            and labels.get("GPU_I_ID", "") == gi_id
        ):
            found[name.removeprefix("DCGM_FI_")] = sample.value
    return found


def polled(*gpus: dict[str, Any], options: SamplerOptions | None = None) -> tuple[Sample, ...]:
    """Two polls, so that there are two looks at the profiling counters."""
    made = source(playing(node(*gpus)), options=options)
    made.poll(NOW_NS)
    return made.poll(LATER_NS).samples


DEV = {
    "DEV_SM_CLOCK": 1980,
    "DEV_MEM_CLOCK": 3201,
    "DEV_MEMORY_TEMP": 47,
    "DEV_GPU_TEMP": 41,
    "DEV_SLOWDOWN_TEMP": 92,
    "DEV_POWER_USAGE": 77.67,
    "DEV_POWER_MGMT_LIMIT": 700.0,
    "DEV_TOTAL_ENERGY_CONSUMPTION": 123_456_789,
    "DEV_PCIE_REPLAY_COUNTER": 3,
    "DEV_GPU_UTIL": 87,
    "DEV_MEM_COPY_UTIL": 44,
    "DEV_ENC_UTIL": 1,
    "DEV_DEC_UTIL": 2,
    "DEV_FB_FREE": 100.0,
    "DEV_FB_USED": 20.0,
    "DEV_FB_RESERVED": 5.0,
    "DEV_CORRECTABLE_REMAPPED_ROWS": 4,
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": 5,
    "DEV_ROW_REMAP_FAILURE": 1,
    "DEV_ROW_REMAP_PENDING": 0,
    "DEV_CLOCKS_EVENT_REASONS": 0x40,
    "DEV_VGPU_LICENSE_STATUS": 1,
    "DEV_NVLINK_BANDWIDTH_TOTAL": 1234,
    "DEV_XID_ERRORS": 0,
    "DEV_PCIE_LINK_GEN": 4,
    "DEV_PCIE_LINK_WIDTH": 8,
    "DEV_PCIE_MAX_LINK_GEN": 5,
    "DEV_PCIE_MAX_LINK_WIDTH": 16,
    "DEV_PSTATE": 2,
    "DEV_GET_GPU_RECOVERY_ACTION": 1,
}
PROF = {
    "PROF_GR_ENGINE_ACTIVE": 0.5,
    "PROF_PIPE_TENSOR_ACTIVE": 0.5,
    "PROF_DRAM_ACTIVE": 0.5,
    "PROF_PCIE_TX_BYTES": 3.0 * 2**20,
    "PROF_PCIE_RX_BYTES": 3.0 * 2**20,
}


def test_every_default_row_has_dcgms_value_in_dcgms_unit() -> None:
    assert dcgm(polled(gpu())) == DEV | PROF


def test_opt_in_rows_come_from_the_fields_that_dcgm_reads() -> None:
    shown = dcgm(polled(gpu(), options=EVERYTHING))
    fields = {
        "POWER_VIOLATION": 74,
        "THERMAL_VIOLATION": 75,
        "SYNC_BOOST_VIOLATION": 76,
        "BOARD_LIMIT_VIOLATION": 77,
        "LOW_UTIL_VIOLATION": 78,
        "RELIABILITY_VIOLATION": 79,
        "ECC_SBE_VOL_TOTAL": 3,
        "ECC_DBE_VOL_TOTAL": 4,
        "ECC_SBE_AGG_TOTAL": 5,
        "ECC_DBE_AGG_TOTAL": 6,
        "RETIRED_SBE": 29,
        "RETIRED_DBE": 30,
        "RETIRED_PENDING": 31,
        "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 38,
        "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": 45,
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL": 52,
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 59,
    }
    assert {name: shown[f"DEV_{name}"] for name in fields} == {name: 1000 + one for name, one in fields.items()}


def test_every_row_of_the_catalogue_is_read_and_stamped() -> None:
    samples = [one for one in polled(gpu(), options=EVERYTHING) if one.metric.prometheus_name.startswith("DCGM_FI_")]
    assert {sample.metric for sample in samples} == {*device.ROWS, *profiling.ROWS}
    assert {sample.time_ns for sample in samples} == {LATER_NS}
    assert {sample.start_ns for sample in samples if sample.metric.kind is Kind.COUNTER} == {BOOT_NS}
    assert {sample.start_ns for sample in samples if sample.metric.kind is Kind.GAUGE} == {0}


def test_all_field_values_of_a_gpu_are_asked_for_in_one_call() -> None:
    nvml, asked = playing(node(gpu())), Counter[str]()
    made = source(nvml, options=EVERYTHING)
    nvml.inject("nvmlDeviceGetFieldValues", lambda: asked.update(["fields"]))
    made.poll(NOW_NS)
    assert asked == {"fields": 1}


def test_labels_are_dcgm_exporters() -> None:
    sample = source(playing(node(gpu()))).poll(NOW_NS).samples[0]
    assert dict(sample.attributes) == {
        "Hostname": "node1",
        "UUID": "GPU-1",
        "device": "nvidia0",
        "gpu": "0",
        "modelName": "NVIDIA H200",
        "pci_bus_id": "00000000:00:00.0",
        "DCGM_FI_DRIVER_VERSION": double.DRIVER,
    }


def test_unsupported_rows_of_a_gpu_are_absent_and_no_error() -> None:
    errors = Errors()
    identity = ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo", "nvmlDeviceGetTemperature:0")
    old = {call: answer for call, answer in gpu().items() if call in identity}
    assert dcgm(source(playing(node(old)), errors).poll(NOW_NS).samples) == {"DEV_GPU_TEMP": 41}
    assert not errors.counted


def test_a_memory_temperature_that_is_none_is_dropped() -> None:
    hot: dict[str, Any] = field(pynvml.NVML_FI_DEV_MEMORY_TEMP, 0x7FFFFFF0, kind=pynvml.NVML_VALUE_TYPE_UNSIGNED_INT)
    assert "DEV_MEMORY_TEMP" not in dcgm(polled(gpu(**hot)))


def test_a_value_that_nvml_does_not_have_is_absent_and_the_nodes_other_rows_can_be_sent() -> None:
    """NVML_VALUE_NOT_AVAILABLE is -1: all ones in an unsigned number, which no sample can carry."""
    unavailable = 2**64 - 1
    traffic: dict[str, Any] = field(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, unavailable, 0xFFFFFFFF)
    samples = polled(gpu(nvmlDeviceGetTotalEnergyConsumption=unavailable, **traffic))
    absent = {"DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_NVLINK_BANDWIDTH_TOTAL"}
    assert dcgm(samples) == {name: value for name, value in (DEV | PROF).items() if name not in absent}
    missing = [dict(one.attributes) for one in samples if one.metric is rows.FIELD_ABSENT and one.value]
    reasons = {one["field"]: one["reason"] for one in missing if one["field"].startswith("DCGM_")}
    assert reasons == {f"DCGM_FI_{name}": "no_data" for name in absent}
    assert [export.points for export in encode(resource_of("node1"), samples, scope="")] == [len(samples)]


IDENTITY = (
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGridLicensableFeatures",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlGpmQueryDeviceSupport",
)


def unavailable(answer: Any, number: int) -> Any:
    """An answer with this number in place of each of its values."""
    if isinstance(answer, dict):
        return {name: one if name == "valueType" else number for name, one in answer.items()}
    return [number for _ in answer] if isinstance(answer, list) else number


@pytest.mark.parametrize("number", [2**32 - 1, 2**64 - 1, -1])
def test_the_number_that_stands_for_no_value_is_absent_in_every_row(number: int) -> None:
    kept = {"DEV_VGPU_LICENSE_STATUS", "DEV_XID_ERRORS"}
    answers = {call: one if call in IDENTITY else unavailable(one, number) for call, one in gpu().items()}
    assert dcgm(polled(answers, options=EVERYTHING)).keys() == kept


def test_a_utilization_above_100_percent_is_dropped() -> None:
    """Seen with dcgmi: 4294967295, and values of some thousands, on idle GPUs."""
    odd = gpu(
        nvmlDeviceGetUtilizationRates={"gpu": 2**32 - 1, "memory": 44}, nvmlDeviceGetEncoderUtilization=[1042, 167_000]
    )
    samples = polled(odd)
    assert not {"DEV_GPU_UTIL", "DEV_ENC_UTIL"} & dcgm(samples).keys()
    assert dcgm(samples)["DEV_MEM_COPY_UTIL"] == 44
    shared = [one.value for one in samples if one.metric is accelerator.UTILIZATION]
    assert shared == [0.5], "GPM's instead"


def test_a_gpu_without_nvlink_has_no_nvlink_row_even_if_one_direction_answers() -> None:
    missing: dict[str, Any] = {
        f"nvmlDeviceGetFieldValues:{pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX}:{0xFFFFFFFF}": NOT_SUPPORTED
    }
    assert "DEV_NVLINK_BANDWIDTH_TOTAL" not in dcgm(polled(gpu(**missing)))


def test_a_field_that_the_driver_is_too_old_for_is_absent_and_no_error() -> None:
    errors, number = Errors(), f"nvmlDeviceGetFieldValues:{pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX}:{0xFFFFFFFF}"
    unknown: dict[str, Any] = {number: {"error": pynvml.NVML_ERROR_INVALID_ARGUMENT}}
    samples = source(playing(node(gpu(**unknown))), errors).poll(NOW_NS).samples
    absent = {
        dict(one.attributes)["field"]: dict(one.attributes)["reason"]
        for one in samples
        if one.metric is rows.FIELD_ABSENT
    }
    assert absent["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"] == "not_supported"
    assert not errors.counted


class OldPynvml:
    """A pynvml that lacks some names."""

    def __init__(self, nvml: RecordedNvml, *missing: str) -> None:
        self._nvml, self._missing = nvml, missing

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(f"module 'pynvml' has no attribute {name!r}")
        return getattr(self._nvml, name)


def test_rows_whose_names_an_old_pynvml_lacks_are_absent_and_cost_no_other_row() -> None:
    """nvidia-ml-py 12.560.30 lacks the recovery action."""
    errors = Errors()
    missing = (
        "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "NVML_FI_DEV_NVLINK_GET_STATE",
        "NVML_NVLINK_STATE_ACTIVE",
        "nvmlDeviceGetMPSComputeRunningProcesses",
        "nvmlDeviceGetVbiosVersion",
    )
    old = OldPynvml(playing(node(gpu())), *missing)
    options = SamplerOptions(nvlink="all", labels=(device.VBIOS_LABEL, device.BRAND_LABEL))
    made = NvmlSource(Sampler(old, options), hostname="node1", boot_ns=BOOT_NS, on_error=errors).start()
    made.poll(NOW_NS)
    samples = made.poll(LATER_NS).samples
    lacking = {"DEV_GET_GPU_RECOVERY_ACTION", "DEV_CLOCKS_EVENT_REASONS"}
    assert dcgm(samples).keys() == (DEV | PROF).keys() - lacking
    absent = [dict(one.attributes) for one in samples if one.metric is rows.FIELD_ABSENT and one.value]
    reasons = {one["field"]: one["reason"] for one in absent if one["field"].startswith("DCGM_")}
    assert reasons == {f"DCGM_FI_{name}": "old_pynvml" for name in lacking}
    assert not errors.counted


def test_a_gpu_that_needs_no_licence_says_0_as_dcgm_does() -> None:
    bare = {"isGridLicenseSupported": 0, "licensableFeaturesCount": 0, "gridLicensableFeatures": []}
    assert dcgm(polled(gpu(nvmlDeviceGetGridLicensableFeatures=bare)))["DEV_VGPU_LICENSE_STATUS"] == 0


def test_an_error_is_counted_by_call_and_costs_only_its_own_rows() -> None:
    errors, bad = Errors(), gpu(nvmlDeviceGetPowerUsage={"error": pynvml.NVML_ERROR_UNKNOWN})
    shown = dcgm(source(playing(node(bad)), errors).poll(NOW_NS).samples)
    assert "DEV_POWER_USAGE" not in shown
    assert shown["DEV_GPU_TEMP"] == 41
    assert errors.counted == {"nvmlDeviceGetPowerUsage": 1}


def test_a_gpu_that_vanishes_stops_and_is_found_again_when_it_returns() -> None:
    errors, nvml = Errors(), playing(node(gpu("GPU-1"), gpu("GPU-2", 1)))
    made = source(nvml, errors)
    nvml.lost = {"1"}
    samples = made.poll(NOW_NS).samples
    assert dcgm(samples, "GPU-1")
    assert not dcgm(samples, "GPU-2")
    assert errors.counted.total() == 1
    assert not dcgm(made.poll(NOW_NS + FIRST_RETRY_NS).samples, "GPU-2")
    nvml.lost = set()
    assert not dcgm(made.poll(NOW_NS + FIRST_RETRY_NS + SECOND_NS).samples, "GPU-2")
    assert dcgm(made.poll(NOW_NS + 3 * FIRST_RETRY_NS).samples, "GPU-2")


def test_a_gpu_that_vanishes_in_the_midst_of_a_reading_is_missed_at_once() -> None:
    errors, nvml = Errors(), playing(node(gpu("GPU-1"), gpu("GPU-2", 1)))
    made = source(nvml, errors)
    made.poll(NOW_NS)
    nvml.lost = {"1"}
    assert not dcgm(made.poll(LATER_NS).samples, "GPU-2")
    assert [one.uuid for one in made.devices] == ["GPU-1"]
    nvml.lost = set()
    assert dcgm(made.poll(LATER_NS + FIRST_RETRY_NS).samples, "GPU-2")
    assert [one.uuid for one in made.devices] == ["GPU-1", "GPU-2"]


def test_a_driver_that_is_reloaded_is_found_again() -> None:
    nvml = playing(node(gpu()))
    made = source(nvml)
    made.poll(NOW_NS)
    nvml.driver = False
    assert not dcgm(made.poll(LATER_NS).samples)
    nvml.driver = True
    assert dcgm(made.poll(LATER_NS + FIRST_RETRY_NS).samples)


def test_nvml_that_could_not_be_initialised_again_is_initialised_later() -> None:
    nvml = playing(node(gpu()))
    made = source(nvml)
    made.poll(NOW_NS)
    nvml.lost = {"0"}
    made.poll(LATER_NS)

    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    nvml.inject("nvmlInit", refuse)
    made.poll(LATER_NS + FIRST_RETRY_NS)
    assert nvml.opened == 0
    nvml.inject("nvmlInit", None)
    made.poll(LATER_NS + 2 * FIRST_RETRY_NS)
    assert nvml.opened == 1


def test_looking_for_a_lost_gpu_becomes_rare() -> None:
    errors, nvml = Errors(), playing(node(gpu()))
    made = source(nvml, errors)
    nvml.lost = {"0"}
    for second in range(600):
        made.poll(NOW_NS + second * SECOND_NS)
    assert errors.counted["nvmlDeviceGetHandleByIndex"] <= 8


@pytest.mark.parametrize("vanishes", [False, True], ids=["reset", "gone and back"])
def test_a_counter_that_falls_has_a_new_start(vanishes: bool) -> None:  # noqa: FBT001  a parameter of the test
    nvml = playing(node(gpu()))
    made = source(nvml)
    made.poll(NOW_NS)
    if vanishes:
        nvml.lost = {"0"}
        made.poll(LATER_NS)
        nvml.lost = set()
    nvml.answers["0"]["nvmlDeviceGetTotalEnergyConsumption"] = nvml.answers["0"]["nvmlDeviceGetPcieReplayCounter"] = 2
    back_ns = LATER_NS + FIRST_RETRY_NS
    shown = [made.poll(back_ns + seconds * SECOND_NS).samples for seconds in (0, 10)]
    starts = {
        row: [one.start_ns for samples in shown for one in samples if one.metric is row]
        for row in (device.PCIE_REPLAY, device.TOTAL_ENERGY)
    }
    # An energy that falls may be a wrong reading: the next one decides.
    energy_starts = [back_ns, back_ns] if vanishes else [back_ns + 10 * SECOND_NS]
    assert starts == {device.PCIE_REPLAY: [back_ns, back_ns], device.TOTAL_ENERGY: energy_starts}


def test_a_gpu_without_a_device_file_is_still_read() -> None:
    samples = polled(gpu(nvmlDeviceGetMinorNumber=NOT_SUPPORTED))
    assert dcgm(samples)["DEV_GPU_TEMP"] == 41
    assert not [sample for sample in samples if "device" in dict(sample.attributes)]


def test_mig_instances_show_memory_and_profiling_under_their_parents_uuid() -> None:
    nvml = playing(
        divided(instance("1g.10gb", 9, "MIG-1"), instance("1c.1g.10gb", 9, "MIG-2"), instance("2g.20gb", 3, "MIG-3"))
    )
    made = source(nvml)
    made.poll(NOW_NS)
    nvml.answers["0/gi3"] |= double.gpm(25.0)
    samples = made.poll(LATER_NS).samples
    memory = {"DEV_FB_FREE": 100.0, "DEV_FB_USED": 20.0, "DEV_FB_RESERVED": 5.0}
    assert dcgm(samples, gi_id="9") == memory | PROF
    assert dcgm(samples, gi_id="3")["PROF_GR_ENGINE_ACTIVE"] == 0.25
    profiles = {(one.gi_id, one.gi_profile) for one in made.devices}
    assert profiles == {("", ""), ("9", "1g.10gb"), ("3", "2g.20gb")}


def test_a_gpu_that_nvml_lists_again_is_found_without_a_restart() -> None:
    nvml = playing(node(gpu("GPU-1")))
    made = source(nvml)
    made.poll(NOW_NS)
    nvml.answers["1"] = gpu("GPU-2", 1)
    nvml.answers[""]["nvmlDeviceGetCount"] = 2
    assert not dcgm(made.poll(LATER_NS).samples, "GPU-2")
    assert dcgm(made.poll(NOW_NS + RELIST_NS).samples, "GPU-2")
    assert [one.uuid for one in made.devices] == ["GPU-1", "GPU-2"]


def test_a_gpu_that_nvml_lists_again_is_found_in_time_after_the_clock_was_set_back() -> None:
    nvml = playing(node(gpu("GPU-1")))
    made = source(nvml)
    made.poll(NOW_NS)
    nvml.answers["1"] = gpu("GPU-2", 1)
    nvml.answers[""]["nvmlDeviceGetCount"] = 2
    back_ns = NOW_NS - 10 * RELIST_NS
    made.poll(back_ns)
    assert dcgm(made.poll(back_ns + RELIST_NS).samples, "GPU-2")


def test_a_mig_instance_made_while_the_exporter_runs_is_found() -> None:
    nvml = playing(divided(instance("1g.10gb", 9, "MIG-1")))
    made = source(nvml)
    made.poll(NOW_NS)
    nvml.answers["0/1"] = instance("1g.10gb", 10, "MIG-2")
    assert not dcgm(made.poll(LATER_NS).samples, gi_id="10")
    assert dcgm(made.poll(NOW_NS + RELIST_NS).samples, gi_id="10")


def test_what_ended_is_withdrawn_at_once() -> None:
    nvml = playing(node(gpu(nvmlDeviceGetComputeRunningProcesses=[{"pid": 7, "usedGpuMemory": 5}])))
    made = source(nvml)
    made.poll(NOW_NS)
    nvml.answers["0"]["nvmlDeviceGetComputeRunningProcesses"] = []
    nvml.answers["0"]["nvmlDeviceGetTemperature:0"] = NOT_SUPPORTED
    ended = {sample.metric for sample in made.poll(LATER_NS).samples if sample.value is None}
    assert {rows.PROCESS_MEMORY, device.GPU_TEMP} <= ended
    assert device.GPU_UTIL not in ended
    assert rows.PROCESS_MEMORY not in {sample.metric for sample in made.poll(LATER_NS + SECOND_NS).samples}


def test_without_a_driver_the_error_says_what_to_do() -> None:
    with pytest.raises(DeviceError, match=r"install the NVIDIA driver.*exporter\.nvml to off"):
        source(playing(node(gpu()), driver=False))


def test_nvml_is_released_once_and_all_its_memory_with_it() -> None:
    nvml = playing(divided(instance("1g.10gb", 9, "MIG-1")))
    made = source(nvml)
    made.poll(NOW_NS)
    assert nvml.gpm_samples
    made.close()
    made.close()
    assert (nvml.opened, nvml.gpm_samples) == (0, {})
