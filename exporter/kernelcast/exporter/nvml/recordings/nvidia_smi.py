"""Converts what `nvidia-smi -q` printed to a recording of NVML: several outputs in one file become several moments.

`nvidia-smi` prints what NVML answers, so each value becomes the answer of the call that it came from. `N/A` becomes
NVML's "not supported", and so do rows that the output lacks: energy, profiling, NVLink, licences.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pynvml

from kernelcast.exporter.nvml.recordings.recording import NODE, Answers, RecordedChanges, Recording, changes
from kernelcast.exporter.nvml.sampling.fields import BYTES_PER_MEBIBYTE, CLOCK_EVENTS, MILLIWATTS_PER_WATT
from kernelcast.exporter.nvml.sampling.labels import BRANDS
from kernelcast.wire.errors import TraceError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

START: Final = re.compile(r"^=+NVSMI LOG=+$", re.MULTILINE)
END: Final = re.compile(r"^#{10,}$", re.MULTILINE)
GPU: Final = re.compile(r"^GPU ([0-9A-Fa-f:.]+)$")
LINE: Final = re.compile(r"^( *)(\S.*?) *(?:: (.*))?$")
NUMBER: Final = re.compile(r"^(\d+(?:\.\d+)?)\b")
LETTERED: Final = re.compile(r"^[A-Za-z]?(\d+)[A-Za-z]?$")
INDENT: Final = 4
NO_NAMES: Final = {"N/A", "-"}
YES: Final = {"Yes": 1, "No": 0}
TIME_FORMAT: Final = "%a %b %d %H:%M:%S %Y"
KINDS: Final = {"C": "Compute", "G": "Graphics", "M+C": "MPSCompute", "C+G": "Compute"}
RECOVERY_ACTIONS: Final = {
    "None": pynvml.NVML_GPU_RECOVERY_ACTION_NONE,
    "Reset": pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET,
    "GPU Reset": pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET,
    "Reboot": pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT,
    "Node Reboot": pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT,
    "Drain P2P": pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P,
    "Drain and Reset": pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET,
}
"""NVML's value by nvidia-smi's text; only `None` occurs in our captures. Any other text gives no value."""
REASONS: Final = {
    "Idle": "gpu_idle",
    "Applications Clocks Setting": "applications_clocks_setting",
    "SW Power Cap": "sw_power_cap",
    "HW Slowdown": "hw_slowdown",
    "HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Power Brake Slowdown": "hw_power_brake_slowdown",
    "Sync Boost": "sync_boost",
    "SW Thermal Slowdown": "sw_thermal_slowdown",
    "Display Clock Setting": "display_clock_setting",
}


@dataclass(slots=True)
class OutputSection:
    """A part of the output: the `name : value` lines in it, and the parts within it, in order."""

    name: str = ""
    values: dict[str, str] = field(default_factory=dict)
    parts: list["OutputSection"] = field(default_factory=list)

    def part(self, name: str) -> "OutputSection":
        """The first part of a name; an empty one where there is none."""
        return next((part for part in self.parts if part.name == name), OutputSection(name))

    def number(self, name: str) -> float | None:
        """A value without its unit; None where there is none."""
        found = NUMBER.match(self.values.get(name, ""))
        return float(found[1]) if found else None

    def flag(self, name: str) -> int | None:
        """Yes or No as 1 or 0; None where it is neither."""
        return YES.get(self.values.get(name, ""))


def read_capture(path: Path) -> Recording:
    """Read a file with one or more outputs of `nvidia-smi -q`.

    Raises:
        TraceError: It cannot be read, or holds none.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error}") from None
    logs = [_tree(END.split(part)[0]) for part in START.split(text)[1:]]
    logs = [log for log in logs if any(GPU.match(part.name) for part in log.parts)]
    if not logs:
        raise TraceError(f"{path} holds no output of `nvidia-smi -q`; write one with `nvidia-smi -q > {path}`")
    try:
        return Recording(tuple(_moments(logs)))
    except ValueError as error:
        raise TraceError(f"{path} is no output of `nvidia-smi -q` that can be read: {error}; write it again") from None


def _tree(text: str) -> OutputSection:
    root = OutputSection()
    open_sections = [root]
    for line in text.splitlines():
        found = LINE.match(line.rstrip())
        if not found:
            continue
        depth = min(len(found[1]) // INDENT, len(open_sections) - 1)
        inside = open_sections[depth]
        del open_sections[depth + 1 :]
        if found[3] is not None:
            inside.values[found[2]] = found[3].strip()
        # A value may have parts too, such as `HW Slowdown` and each line of a process.
        section = OutputSection(found[2], {"": (found[3] or "").strip()})
        inside.parts.append(section)
        open_sections.append(section)
    return root


def _moments(logs: list[OutputSection]) -> Iterator[RecordedChanges]:
    began, before = _time_ns(logs[0]), Answers()
    for log in logs:
        now = _answers(log)
        yield RecordedChanges(max(_time_ns(log) - began, 0), changes(before, now))
        before = now


def _time_ns(log: OutputSection) -> int:
    try:
        parsed = datetime.strptime(log.values.get("Timestamp", ""), TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(parsed.timestamp()) * NANOSECONDS_PER_SECOND


def _answers(log: OutputSection) -> Answers:
    gpus = [part for part in log.parts if GPU.match(part.name)]
    answers: Answers = {
        NODE: {
            "nvmlDeviceGetCount": len(gpus),
            "nvmlSystemGetDriverVersion": log.values.get("Driver Version", ""),
            **_process_names(gpus),
        }
    }
    for index, gpu in enumerate(gpus):
        instances = [part for part in gpu.parts if part.name == "MIG Device"]
        parts = (_identity(gpu, instances), _labels(gpu), _engines(gpu), _link(gpu), _memory_health(gpu))
        answers[str(index)] = _known({call: answer for part in parts for call, answer in part.items()})
        for at, instance in enumerate(instances):
            answers[f"{index}/{at}"] = _known(_instance(gpu, instance))
    return answers


def _known(answers: dict[str, Any]) -> dict[str, Any]:
    unknown = {"error": pynvml.NVML_ERROR_NOT_SUPPORTED}
    return {call: unknown if answer is None else answer for call, answer in answers.items()}


def _identity(gpu: OutputSection, instances: list[OutputSection]) -> dict[str, Any]:
    divided = int(gpu.part("MIG Mode").values.get("Current") == "Enabled")
    minor = gpu.number("Minor Number")
    return {
        "nvmlDeviceGetUUID": gpu.values.get("GPU UUID", ""),
        "nvmlDeviceGetName": gpu.values.get("Product Name", ""),
        "nvmlDeviceGetPciInfo": {"busId": gpu.part("PCI").values.get("Bus Id", "")},
        "nvmlDeviceGetMinorNumber": None if minor is None else int(minor),
        "nvmlDeviceGetMigMode": [divided, divided],
        "nvmlDeviceGetMaxMigDeviceCount": len(instances),
        "nvmlGpmQueryDeviceSupport": {"error": pynvml.NVML_ERROR_NO_DATA},
        **({} if divided else _processes(gpu)),
    }


def _labels(gpu: OutputSection) -> dict[str, Any]:
    """Values that a counters table may use as labels; NVML's own version is not in the output."""
    inforom = gpu.part("Inforom Version")
    brand = gpu.values.get("Product Brand", "")
    return {
        "nvmlDeviceGetBrand": BRANDS.index(brand) if brand in BRANDS else None,
        "nvmlDeviceGetSerial": _text(gpu, "Serial Number"),
        "nvmlDeviceGetVbiosVersion": _text(gpu, "VBIOS Version"),
        "nvmlDeviceGetInforomImageVersion": _text(inforom, "Image Version"),
        f"nvmlDeviceGetInforomVersion:{pynvml.NVML_INFOROM_OEM}": _text(inforom, "OEM Object"),
        f"nvmlDeviceGetInforomVersion:{pynvml.NVML_INFOROM_ECC}": _text(inforom, "ECC Object"),
        f"nvmlDeviceGetInforomVersion:{pynvml.NVML_INFOROM_POWER}": _text(inforom, "Power Management Object"),
    }


def _text(section: OutputSection, name: str) -> str | None:
    value = section.values.get(name, "N/A")
    return None if value in NO_NAMES else value


def _engines(gpu: OutputSection) -> dict[str, Any]:
    clocks, power, use = gpu.part("Clocks"), gpu.part("GPU Power Readings"), gpu.part("Utilization")
    heat = gpu.part("Temperature")
    # Drivers 535 to 565 have one line; later ones have it by this name and an instantaneous value.
    drawn = "Average Power Draw" if "Average Power Draw" in power.values else "Power Draw"
    rates = {"gpu": _whole(use, "GPU"), "memory": _whole(use, "Memory")}
    return {
        f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_SM}": _whole(clocks, "SM"),
        f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_MEM}": _whole(clocks, "Memory"),
        f"nvmlDeviceGetTemperature:{pynvml.NVML_TEMPERATURE_GPU}": _whole(heat, "GPU Current Temp"),
        f"nvmlDeviceGetTemperatureThreshold:{pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN}": _whole(
            heat, "GPU Slowdown Temp"
        ),
        **_field("MEMORY_TEMP", _whole(heat, "Memory Current Temp")),
        "nvmlDeviceGetPowerUsage": _whole(power, drawn, MILLIWATTS_PER_WATT),
        "nvmlDeviceGetEnforcedPowerLimit": _whole(power, "Current Power Limit", MILLIWATTS_PER_WATT),
        "nvmlDeviceGetUtilizationRates": None if None in rates.values() else rates,
        "nvmlDeviceGetEncoderUtilization": _pair(_whole(use, "Encoder")),
        "nvmlDeviceGetDecoderUtilization": _pair(_whole(use, "Decoder")),
        "nvmlDeviceGetPcieReplayCounter": _whole(gpu.part("PCI"), "Replays Since Reset"),
        "nvmlDeviceGetCurrentClocksEventReasons": _reasons(gpu),
        "nvmlDeviceGetMemoryInfo": _memory(gpu.part("FB Memory Usage")),
    }


def _link(gpu: OutputSection) -> dict[str, Any]:
    """PCIe, performance state, fan and recovery."""
    link = gpu.part("PCI").part("GPU Link Info")
    generation, width = link.part("PCIe Generation"), link.part("Link Width")
    action = RECOVERY_ACTIONS.get(gpu.values.get("GPU Recovery Action", ""))
    return {
        "nvmlDeviceGetCurrPcieLinkGeneration": _whole(generation, "Current"),
        "nvmlDeviceGetMaxPcieLinkGeneration": _whole(generation, "Max"),
        "nvmlDeviceGetCurrPcieLinkWidth": _lettered(width, "Current"),
        "nvmlDeviceGetMaxPcieLinkWidth": _lettered(width, "Max"),
        "nvmlDeviceGetPerformanceState": _lettered(gpu, "Performance State"),
        "nvmlDeviceGetFanSpeed": _whole(gpu, "Fan Speed"),
        **_field("GET_GPU_RECOVERY_ACTION", action),
    }


def _lettered(section: OutputSection, name: str) -> int | None:
    """A number with a letter at one end, such as 16x or P0."""
    found = LETTERED.match(section.values.get(name, ""))
    return int(found[1]) if found else None


def _memory_health(gpu: OutputSection) -> dict[str, Any]:
    retired, errors = gpu.part("Retired Pages"), gpu.part("ECC Errors")
    remapped = gpu.part("Remapped Rows")
    rows = (
        _whole(remapped, "Correctable Error"),
        _whole(remapped, "Uncorrectable Error"),
        remapped.flag("Pending"),
        remapped.flag("Remapping Failure Occurred"),
    )
    return {
        "nvmlDeviceGetRemappedRows": None if None in rows else list(rows),
        **_field("RETIRED_SBE", _whole(retired, "Single Bit ECC")),
        **_field("RETIRED_DBE", _whole(retired, "Double Bit ECC")),
        **_field("RETIRED_PENDING", retired.flag("Pending Page Blacklist")),
        **_field("ECC_SBE_VOL_TOTAL", _errors(errors.part("Volatile"), " Correctable")),
        **_field("ECC_DBE_VOL_TOTAL", _errors(errors.part("Volatile"), " Uncorrectable")),
        **_field("ECC_SBE_AGG_TOTAL", _errors(errors.part("Aggregate"), " Correctable")),
        **_field("ECC_DBE_AGG_TOTAL", _errors(errors.part("Aggregate"), " Uncorrectable")),
    }


def _instance(gpu: OutputSection, instance: OutputSection) -> dict[str, Any]:
    gi_id, ci_id = instance.values.get("GPU Instance ID", "0"), instance.values.get("Compute Instance ID", "0")
    return {
        "nvmlDeviceGetUUID": f"MIG-{gpu.values.get('GPU UUID', '')}/{gi_id}/{ci_id}",
        # The output does not name the profile.
        "nvmlDeviceGetName": f"{gpu.values.get('Product Name', '')} MIG ",
        "nvmlDeviceGetGpuInstanceId": int(gi_id),
        "nvmlDeviceGetMemoryInfo": _memory(instance.part("Shared FB Memory Usage")),
        **_processes(gpu, gi_id, ci_id),
    }


def _process_names(gpus: list[OutputSection]) -> dict[str, str]:
    """The program's name of each process, without its folder, where the output has it."""
    parts = [part for gpu in gpus for part in gpu.part("Processes").parts if part.name == "Process ID"]
    paths = {part.values[""]: part.values.get("Name", "") for part in parts}
    return {
        f"nvmlSystemGetProcessName:{pid}": path.rpartition("/")[2]
        for pid, path in paths.items()
        if path and path not in NO_NAMES and not path.startswith("[")
    }


def _processes(gpu: OutputSection, gi_id: str = "N/A", ci_id: str = "N/A") -> dict[str, Any]:
    """The processes of a GPU, or of one compute instance: two lines that name both instances precede each process."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS.values()}
    of_gpu_instance = of_compute_instance = False
    for part in gpu.part("Processes").parts:
        if part.name == "GPU instance ID":
            of_gpu_instance, of_compute_instance = part.values[""] == gi_id, True
        elif part.name == "Compute instance ID":
            of_compute_instance = part.values[""] == ci_id
        elif part.name == "Process ID" and of_gpu_instance and of_compute_instance:
            memory = _whole(part, "Used GPU Memory", BYTES_PER_MEBIBYTE)
            found[KINDS.get(part.values.get("Type", ""), "Compute")].append(
                {"pid": int(part.values[""]), "usedGpuMemory": memory}
            )
    return {f"nvmlDeviceGet{kind}RunningProcesses": processes for kind, processes in found.items()}


def _memory(section: OutputSection) -> dict[str, int] | None:
    sizes = {name: _whole(section, name.title(), BYTES_PER_MEBIBYTE) for name in ("total", "reserved", "used", "free")}
    known = {name: size for name, size in sizes.items() if size is not None}
    return known if len(known) == len(sizes) else None


def _reasons(gpu: OutputSection) -> int | None:
    section = gpu.part("Clocks Event Reasons")
    flags = {**section.values, **section.part("HW Slowdown").values}
    if not set(REASONS) & set(flags):
        return None
    return sum(1 << CLOCK_EVENTS.index(reason) for name, reason in REASONS.items() if flags.get(name) == "Active")


def _errors(section: OutputSection, kind: str) -> int | None:
    counts = [_whole(section, name) for name in section.values if kind in name]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _field(name: str, value: int | None) -> dict[str, Any]:
    call = f"nvmlDeviceGetFieldValues:{getattr(pynvml, f'NVML_FI_DEV_{name}')}:0"
    answer = {"valueType": pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "value": value}
    return {call: None if value is None else answer}


def _whole(section: OutputSection, name: str, factor: int = 1) -> int | None:
    value = section.number(name)
    return None if value is None else round(value * factor)


def _pair(value: int | None) -> list[int] | None:
    return None if value is None else [value, 0]
