"""NVML answers that a test sets: GPUs for the recorded pynvml, on a clock that stands still."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pynvml

from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.recording import (
    NODE,
    Answers,
    Event,
    RecordedChanges,
    Recording,
    gpm_owner,
    write,
)

MEBIBYTE = 2**20
DRIVER = "590.48.01"
NOT_SUPPORTED = {"error": pynvml.NVML_ERROR_NOT_SUPPORTED}
UNSIGNED_LONG_LONG = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
GPM_IDS = (*range(1, 8), 9, 10, 11, 12, 13, 20, 21, *range(30, 38), 60, 61)
MEMORY = {"total": 125 * MEBIBYTE, "reserved": 5 * MEBIBYTE, "free": 100 * MEBIBYTE, "used": 20 * MEBIBYTE}


def field(number: int, value: float, scope: int = 0, kind: int = UNSIGNED_LONG_LONG) -> dict[str, Any]:
    """One answer of nvmlDeviceGetFieldValues."""
    return {f"nvmlDeviceGetFieldValues:{number}:{scope}": {"valueType": kind, "value": value}}


def gpm(percent: float = 50.0, mebibytes: float = 3.0) -> dict[str, Any]:
    """Answers of nvmlGpmMetricsGet: percent for ratios, MiB/s for rates."""
    return {f"nvmlGpmMetricsGet:{one}": mebibytes if one in (20, 21, 60, 61) else percent for one in GPM_IDS}


def gpu(uuid: str = "GPU-1", index: int = 0, **changed: Any) -> dict[str, Any]:
    """A GPU that answers everything, unlike any real one; `changed` by call, NOT_SUPPORTED takes a call away."""
    answers = {
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetPciInfo": {"busId": f"00000000:{index:02X}:00.0"},
        "nvmlDeviceGetMinorNumber": index,
        "nvmlDeviceGetMigMode": [0, 0],
        f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_SM}": 1980,
        f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_MEM}": 3201,
        f"nvmlDeviceGetTemperature:{pynvml.NVML_TEMPERATURE_GPU}": 41,
        f"nvmlDeviceGetTemperatureThreshold:{pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN}": 92,
        "nvmlDeviceGetMemoryInfo": MEMORY,
        "nvmlDeviceGetPowerUsage": 77_670,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetTotalEnergyConsumption": 123_456_789,
        "nvmlDeviceGetPcieReplayCounter": 3,
        "nvmlDeviceGetCurrPcieLinkGeneration": 4,
        "nvmlDeviceGetCurrPcieLinkWidth": 8,
        "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetPerformanceState": 2,
        "nvmlDeviceGetFanSpeed": 30,
        "nvmlDeviceGetUtilizationRates": {"gpu": 87, "memory": 44},
        "nvmlDeviceGetEncoderUtilization": [1, 167_000],
        "nvmlDeviceGetDecoderUtilization": [2, 167_000],
        "nvmlDeviceGetRemappedRows": [4, 5, 0, 1],
        "nvmlDeviceGetCurrentClocksEventReasons": 0x40,
        "nvmlDeviceGetGridLicensableFeatures": {
            "isGridLicenseSupported": 1,
            "licensableFeaturesCount": 2,
            "gridLicensableFeatures": [{"featureState": 0}, {"featureState": 1}],
        },
        "nvmlDeviceGetSupportedEventTypes": pynvml.nvmlEventTypeXidCriticalError,
        "nvmlGpmQueryDeviceSupport": {"isSupportedDevice": 1},
        **field(pynvml.NVML_FI_DEV_MEMORY_TEMP, 47, kind=pynvml.NVML_VALUE_TYPE_UNSIGNED_INT),
        **field(pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 1, kind=pynvml.NVML_VALUE_TYPE_UNSIGNED_INT),
        **field(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 1000, 0xFFFFFFFF),
        **field(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 234, 0xFFFFFFFF),
        **{
            key: value
            for number in (*range(74, 80), 3, 4, 5, 6, 29, 30, 31, 38, 45, 52, 59)
            for key, value in field(number, 1000 + number).items()
        },
        **gpm(),
    }
    answers |= changed
    return {call: answer for call, answer in answers.items() if answer is not NOT_SUPPORTED}


def instance(name: str, gi_id: int, uuid: str) -> dict[str, Any]:
    """A MIG compute instance."""
    return {
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetName": f"NVIDIA H200 MIG {name}",
        "nvmlDeviceGetGpuInstanceId": gi_id,
        "nvmlDeviceGetMemoryInfo": MEMORY,
    }


def divided(*instances: Mapping[str, Any], uuid: str = "GPU-1") -> Answers:
    """A GPU in MIG mode: it does not tell of its engines, its instances do through GPM."""
    silent = ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization")
    answers: Answers = {
        "0": gpu(uuid)
        | dict.fromkeys(silent, NOT_SUPPORTED)
        | {"nvmlDeviceGetMigMode": [1, 1], "nvmlDeviceGetMaxMigDeviceCount": 7}
    }
    for index, one in enumerate(instances):
        answers[f"0/{index}"] = dict(one)
        answers.setdefault(gpm_owner("0", one["nvmlDeviceGetGpuInstanceId"]), gpm())
    return answers


def node(*gpus: dict[str, Any], **owners: dict[str, Any]) -> Answers:
    """Some GPUs, in order."""
    return {str(index): answers for index, answers in enumerate(gpus)} | owners


def playing(answers: Answers, *, driver: bool = True) -> RecordedNvml:
    """The module that answers so; its clock stands still."""
    node_answers = {
        "nvmlDeviceGetCount": sum("/" not in owner for owner in answers),
        "nvmlSystemGetDriverVersion": DRIVER,
    }
    made = RecordedNvml(Recording((RecordedChanges(0, {NODE: node_answers, **answers}),)), clock=lambda: 0)
    made.driver = driver
    return made


def write_node_with_xid_79(path: Path) -> None:
    """Write a recording of one second: one GPU, used by this process, that falls off the bus at its end."""
    node_answers = {"nvmlDeviceGetCount": 1, "nvmlSystemGetDriverVersion": DRIVER}
    card = gpu("GPU-7", nvmlDeviceGetComputeRunningProcesses=[{"pid": os.getpid(), "usedGpuMemory": 5}])
    write(
        path,
        (RecordedChanges(0, {NODE: node_answers, "0": card}), RecordedChanges(1_000_000_000, {}, (Event("0", 8, 79),))),
    )
