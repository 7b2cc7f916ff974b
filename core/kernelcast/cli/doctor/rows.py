"""Checks of the values that NVML gives for each GPU, with the reasons for missing ones."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Final

from kernelcast.cli.doctor.result import CheckResult, fail, ok, warn

CALLS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nvmlDeviceGetUtilizationRates": "utilisation",
        "nvmlDeviceGetPowerUsage": "power",
        "nvmlDeviceGetTotalEnergyConsumption": "energy",
        "nvmlDeviceGetPcieReplayCounter": "PCIe retries",
        "nvmlDeviceGetRemappedRows": "remapped rows",
        "nvmlDeviceGetEccMode": "ECC",
        "nvmlDeviceGetCurrentClocksEventReasons": "throttle reasons",
        "nvmlDeviceGetEncoderUtilization": "encoder",
        "nvmlDeviceGetSupportedEventTypes": "XID events",
        "nvmlDeviceGetComputeRunningProcesses": "processes",
    }
)
"""NVML calls with one argument, and the values that are missing without them."""

NOT_SUPPORTED: Final = ("NotSupported", "FunctionNotFound")
NO_PERMISSION: Final = "NoPermission"
LOST: Final = ("GpuIsLost", "ResetRequired")
_NO_RIGHTS: Final = (
    "run as the exporter's user; in a container give NVIDIA_DRIVER_CAPABILITIES=utility,compute and the host's pid "
    "namespace"
)


def check_rows(load: Callable[[str], ModuleType] = import_module) -> Iterator[CheckResult]:
    """Yield the available values of each GPU, and whether it is in MIG mode; nothing if NVML does not work at all."""
    try:
        nvml: Any = load("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001  whatever it is, `check_gpu` says so
        return
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            yield from _check_gpu(nvml, index)
    except nvml.NVMLError as error:
        yield fail("nvml", f"{error}", "look at `nvidia-smi` and the kernel's log (Xid)")
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _check_gpu(nvml: Any, index: int) -> Iterator[CheckResult]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        yield _lost(index, error)
        return
    missing: dict[str, list[str]] = {}
    for call, what in CALLS.items():
        try:
            getattr(nvml, call)(handle)
        except AttributeError:
            missing.setdefault(NOT_SUPPORTED[0], []).append(what)
        except nvml.NVMLError as error:
            reason = type(error).__name__.removeprefix("NVMLError_")
            if reason in LOST:
                yield _lost(index, error)
                return
            missing.setdefault(NOT_SUPPORTED[0] if reason in NOT_SUPPORTED else reason, []).append(what)
    yield from _findings_of_gpu(index, missing)
    yield from _mig(nvml, handle, index)


def _lost(index: int, error: Exception) -> CheckResult:
    remedy = "look for Xid 79 in the kernel's log; drain the node, reset the GPU (`nvidia-smi -r`) or reboot"
    return fail(f"gpu {index}", f"{error}", remedy)


def _findings_of_gpu(index: int, missing: Mapping[str, list[str]]) -> Iterator[CheckResult]:
    check = f"rows gpu {index}"
    absent = missing.get(NOT_SUPPORTED[0], [])
    readable = f"{len(CALLS) - sum(map(len, missing.values()))} of {len(CALLS)} kinds"
    yield ok(check, f"{readable}; this GPU has no {', '.join(absent)}" if absent else readable)
    for reason, what in missing.items():
        if reason == NO_PERMISSION:
            yield warn(check, f"user may not read {', '.join(what)}", _NO_RIGHTS)
        elif reason not in NOT_SUPPORTED:
            yield warn(check, f"{', '.join(what)}: {reason}", "look at `nvidia-smi -q` and the kernel's log (Xid)")


def _mig(nvml: Any, handle: Any, index: int) -> Iterator[CheckResult]:
    try:
        current, pending = nvml.nvmlDeviceGetMigMode(handle)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except (nvml.NVMLError, AttributeError):
        return
    if current != pending:
        yield warn(f"mig gpu {index}", "a change of MIG mode waits", "reset the GPU, or reboot the node")
    if not current:
        return
    instances = [number for number in range(count) if _is_there(nvml, handle, number)]
    if instances:
        yield ok(f"mig gpu {index}", f"on, {len(instances)} instances")
    else:
        yield warn(f"mig gpu {index}", "on, without instances", "make some: `nvidia-smi mig -cgi … -C`")


def _is_there(nvml: Any, handle: Any, number: int) -> bool:
    try:
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
    except nvml.NVMLError:
        return False
    return True
