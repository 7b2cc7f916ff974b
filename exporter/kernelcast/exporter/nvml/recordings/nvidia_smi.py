"""Converts what `nvidia-smi -q` printed to a recording of NVML: several outputs in one file become several moments.

`nvidia-smi` prints what NVML answers, so each value becomes the answer of the call that it came from. There are three
answers without a value: the GPU does not support it (`N/A`), the driver could not read it (`ERR!`, `[Unknown Error]`),
or the output does not show it: energy, profiling, NVLink, and lines that this driver's version lacks.
"""

import codecs
import gzip
import re
import uuid
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pynvml

from kernelcast.exporter.nvml.recordings import smi_output
from kernelcast.exporter.nvml.recordings.recording import ERROR, NODE, Answers, RecordedChanges, Recording, changes
from kernelcast.exporter.nvml.recordings.smi_output import (
    NOT_SHOWN,
    Answer,
    OutputSection,
    failure,
    is_error,
    is_failure,
    together,
)
from kernelcast.exporter.nvml.sampling.fields import CLOCK_EVENTS, ENERGY_CALL, FIELD_VALUES, GPM_SUPPORT_CALL
from kernelcast.exporter.nvml.sampling.health import FABRIC_CALL, REPAIR_CALL, SRAM_CALL, UNITS, UNREPAIRABLE_CALL
from kernelcast.exporter.nvml.sampling.labels import BRANDS
from kernelcast.wire.errors import TraceError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

GPU: Final = re.compile(r"^GPU ([0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\.[0-9A-Fa-f])$")
"""Heading of a GPU's section: its PCI address."""
ARGUMENTS: Final = re.compile(r" --?\w")
"""Begin of a process's arguments, which follow its path where the driver read its command line."""
LETTERED: Final = re.compile(r"^[A-Za-z]?(\d+)[A-Za-z]?$")
LOST: Final = re.compile(r"\[?gpu is lost\W*", re.IGNORECASE)
YES: Final = {"Yes": 1, "No": 0}
GZIP: Final = b"\x1f\x8b"
"""Begin of a compressed file, such as the `nvidia-bug-report.log.gz` that the driver's script writes."""
LICENCE_CALL: Final = "nvmlDeviceGetGridLicensableFeatures"
LICENCES: Final = {"Licensed": 1, "Unlicensed": 0}
TIME_FORMAT: Final = "%a %b %d %H:%M:%S %Y"
KINDS: Final = {"C": "Compute", "G": "Graphics", "M+C": "MPSCompute", "C+G": "Compute"}
WHOLE: Final = "N/A"
"""The instances of a process that uses the whole GPU; drivers before 450 do not print them."""
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
ACTIVE: Final = {"Active": 1, "Not Active": 0}
FABRIC_STATES: Final = {"Not Supported": 0, "Not Started": 1, "In Progress": 2, "Completed": 3}
NO_CLUSTER: Final = {"cliqueId": 0, "clusterUuid": [0] * 16}
"""What NVML says of a GPU in no cluster."""
FABRIC_SUMMARIES: Final = {"Healthy": 1, "Unhealthy": 2, "Limited Capacity": 3}
FABRIC_HEALTH: Final = {
    "Bandwidth": (0, "Full"),
    "Route Recovery in progress": (2, "False"),
    "Route Unhealthy": (4, "False"),
    "Access Timeout Recovery": (6, "False"),
    "Incorrect Configuration": (8, "None"),
}
"""Shift in the health mask, and the text without a fault, by line."""
STATUSES: Final = {
    "success": pynvml.NVML_SUCCESS,
    **{
        name.removeprefix("NVML_ERROR_").replace("_", " ").casefold(): getattr(pynvml, name)
        for name in dir(pynvml)
        if name.startswith("NVML_ERROR_")
    },
}
"""NVML's code by the text, such as `Insufficient Resources`."""
SRAM_COUNTS: Final = (
    "aggregateUncParity",
    "aggregateUncSecDed",
    "aggregateCor",
    "volatileUncParity",
    "volatileUncSecDed",
    "volatileCor",
)
UNSHOWN_CALLS: Final = (
    ENERGY_CALL.name,
    GPM_SUPPORT_CALL,
    LICENCE_CALL,
    *(
        f"nvmlDeviceGetFieldValues:{getattr(pynvml, name)}:{value.scope}"
        for value in FIELD_VALUES
        for name in value.fields
    ),
)
"""Calls whose answers no output shows, or not every output."""


def read_capture(path: Path) -> Recording:
    """Read a file with one or more outputs of `nvidia-smi -q`.

    Raises:
        TraceError: It cannot be read, or holds none.
    """
    try:
        data = path.read_bytes()
        if data.startswith(GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path} cannot be read: {error}") from None
    # PowerShell's `>` writes UTF-16.
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    text = data.decode(encoding, errors="replace").replace("\r\n", "\n")
    logs = [log for log in smi_output.read_outputs(text) if _gpus(log)]
    if not logs:
        raise TraceError(
            f"{path} holds no output of `nvidia-smi -q`; write one with `nvidia-smi -q > {path}` "
            "(without -x and --query-gpu)"
        )
    try:
        whole = _whole(logs)
        return Recording(tuple(_moments(whole)), _note(whole[-1], is_cut=len(whole) < len(logs)))
    except ValueError as error:
        raise TraceError(f"{path} is no output of `nvidia-smi -q` that can be read: {error}; write it again") from None


def _moments(logs: list[OutputSection]) -> Iterator[RecordedChanges]:
    began, before = _time_ns(logs[0]), Answers()
    for log in logs:
        now = _answers(log)
        yield RecordedChanges(max(_time_ns(log) - began, 0), changes(before, now))
        before = now


def _whole(logs: list[OutputSection]) -> list[OutputSection]:
    """The outputs without a last one that ends earlier than the one before: `-l` leaves it so when it is stopped."""
    shapes = ["\n".join(f"{gpu.name} {part.name}" for gpu in _gpus(log) for part in gpu.parts) for log in logs[-2:]]
    is_cut = len(shapes) > 1 and shapes[1] != shapes[0] and shapes[0].startswith(shapes[1])
    return logs[:-1] if is_cut else logs


def _note(log: OutputSection, *, is_cut: bool) -> str:
    attached, shown = log.number("Attached GPUs"), len(_gpus(log))
    partial = f"it shows {shown} of {attached} GPUs" if not is_error(attached) and shown < attached else ""
    return "; ".join(filter(None, ("its last output is cut, and left out" if is_cut else "", partial)))


def _gpus(log: OutputSection) -> list[OutputSection]:
    """The GPUs' sections; the first by each address, because other commands' lists of GPUs may follow the output."""
    found: dict[str, OutputSection] = {}
    for part in log.parts:
        if GPU.match(part.name) and not part.text:
            found.setdefault(part.name, part)
    return list(found.values())


def _time_ns(log: OutputSection) -> int:
    try:
        parsed = datetime.strptime(log.text_of("Timestamp"), TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(parsed.timestamp()) * NANOSECONDS_PER_SECOND


def _answers(log: OutputSection) -> Answers:
    gpus = _gpus(log)
    answers: Answers = {
        NODE: {
            "nvmlDeviceGetCount": len(gpus),
            # The kernel's module; drivers from 610 on call it so.
            "nvmlSystemGetDriverVersion": log.text_of("KMD Version", "Driver Version"),
            **_process_names(gpus),
        }
    }
    for index, gpu in enumerate(gpus):
        instances = [part for part in gpu.parts if part.name == "MIG Device"]
        measured = _engines(gpu) | _link(gpu) | _memory_health(gpu) | _repairs(gpu) | _fabric(gpu.part("Fabric"))
        unshown = {call: dict(NOT_SHOWN) for call in UNSHOWN_CALLS}
        answers[str(index)] = unshown | _identity(gpu, instances) | _labels(gpu) | measured
        if all(map(is_error, measured.values())) and any(LOST.fullmatch(line.text) for line in gpu.parts):
            answers[str(index)] |= {call: {ERROR: pynvml.NVML_ERROR_GPU_IS_LOST} for call in measured}
        for at, instance in enumerate(instances):
            answers[f"{index}/{at}"] = _instance(gpu, instance)
    return answers


def _identity(gpu: OutputSection, instances: list[OutputSection]) -> dict[str, Answer]:
    divided = int(gpu.part("MIG Mode").text_of("Current") == "Enabled")
    return {
        "nvmlDeviceGetUUID": _uuid(gpu),
        "nvmlDeviceGetName": _shown(gpu, "Product Name"),
        "nvmlDeviceGetPciInfo": {"busId": _address(gpu)},
        "nvmlDeviceGetMinorNumber": gpu.number("Minor Number"),
        "nvmlDeviceGetMigMode": [divided, divided],
        "nvmlDeviceGetMaxMigDeviceCount": len(instances),
        **({} if divided else _processes(gpu)),
    }


def _shown(section: OutputSection, name: str) -> str:
    """The text of the section's own line; empty where it is not shown, or says that it could not be read."""
    text = section.part(name).text
    return "" if is_failure(text) else text


def _address(gpu: OutputSection) -> str:
    return _shown(gpu.part("PCI"), "Bus Id") or gpu.name.removeprefix("GPU ")


def _uuid(gpu: OutputSection) -> str:
    """The UUID; without one, as with `-d`, the address tells the GPUs apart."""
    return _shown(gpu, "GPU UUID") or _address(gpu)


def _labels(gpu: OutputSection) -> dict[str, Answer]:
    """Values that a counters table may use as labels; NVML's own version is not in the output."""
    inforom = gpu.part("Inforom Version")
    brand = gpu.text_of("Product Brand")
    return {
        "nvmlDeviceGetBrand": BRANDS.index(brand) if brand in BRANDS else failure(brand),
        "nvmlDeviceGetSerial": _text(gpu, "Serial Number"),
        "nvmlDeviceGetVbiosVersion": _text(gpu, "VBIOS Version"),
        "nvmlDeviceGetInforomImageVersion": _text(inforom, "Image Version"),
        f"nvmlDeviceGetInforomVersion:{pynvml.NVML_INFOROM_OEM}": _text(inforom, "OEM Object"),
        f"nvmlDeviceGetInforomVersion:{pynvml.NVML_INFOROM_ECC}": _text(inforom, "ECC Object"),
        f"nvmlDeviceGetInforomVersion:{pynvml.NVML_INFOROM_POWER}": _text(inforom, "Power Management Object"),
    }


def _licence(text: str) -> Answer:
    """NVML's answer for `Licensed (Expiry: …)`, or `Unlicensed (Restricted)`."""
    state, _, _ = text.partition(" (")
    if state not in LICENCES:
        return failure(state)
    feature = {"featureState": LICENCES[state]}
    return {"isGridLicenseSupported": 1, "licensableFeaturesCount": 1, "gridLicensableFeatures": [feature]}


def _text(section: OutputSection, name: str) -> Answer:
    return section.value(name, read=lambda text: failure(text) if is_failure(text) or text == "-" else text)


def _engines(gpu: OutputSection) -> dict[str, Answer]:
    clocks, power, use = gpu.part("Clocks"), gpu.part("GPU Power Readings", "Power Readings"), gpu.part("Utilization")
    heat, licence = gpu.part("Temperature"), gpu.part("vGPU Software Licensed Product", "GRID Licensed Product")
    # The instantaneous value is what NVML gives where it has no average: before Ampere, and on GA100.
    drawn = power.number("Average Power Draw", "Power Draw", "Instantaneous Power Draw", units=smi_output.POWER)
    limit = power.number("Current Power Limit", "Enforced Power Limit", units=smi_output.POWER)
    slowdown = heat.number("GPU Slowdown Temp", units=smi_output.TEMPERATURE)
    rates = {name: use.number(name, units=smi_output.SHARE) for name in ("gpu", "memory")}
    return {
        f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_SM}": clocks.number("SM", units=smi_output.CLOCK),
        f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_MEM}": clocks.number("Memory", units=smi_output.CLOCK),
        f"nvmlDeviceGetTemperature:{pynvml.NVML_TEMPERATURE_GPU}": heat.number(
            "GPU Current Temp", "Gpu", units=smi_output.TEMPERATURE
        ),
        f"nvmlDeviceGetTemperatureThreshold:{pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN}": slowdown,
        **memory_temperature(heat.number("Memory Current Temp", units=smi_output.TEMPERATURE)),
        "nvmlDeviceGetPowerUsage": drawn,
        "nvmlDeviceGetEnforcedPowerLimit": limit,
        "nvmlDeviceGetUtilizationRates": together(rates, dict),
        "nvmlDeviceGetEncoderUtilization": _pair(use.number("Encoder", units=smi_output.SHARE)),
        "nvmlDeviceGetDecoderUtilization": _pair(use.number("Decoder", units=smi_output.SHARE)),
        "nvmlDeviceGetPcieReplayCounter": gpu.part("PCI").number("Replays Since Reset"),
        "nvmlDeviceGetCurrentClocksEventReasons": _reasons(gpu),
        "nvmlDeviceGetMemoryInfo": _memory(gpu.part("FB Memory Usage")),
        LICENCE_CALL: licence.value("License Status", read=_licence),
    }


def _link(gpu: OutputSection) -> dict[str, Answer]:
    """PCIe, performance state, fan and recovery."""
    link = gpu.part("PCI").part("GPU Link Info")
    generation, width = link.part("PCIe Generation"), link.part("Link Width")
    action = gpu.value("GPU Recovery Action", read=lambda text: RECOVERY_ACTIONS.get(text, failure(text)))
    return {
        "nvmlDeviceGetCurrPcieLinkGeneration": generation.number("Current"),
        "nvmlDeviceGetMaxPcieLinkGeneration": generation.number("Max"),
        "nvmlDeviceGetCurrPcieLinkWidth": width.value("Current", read=_lettered),
        "nvmlDeviceGetMaxPcieLinkWidth": width.value("Max", read=_lettered),
        "nvmlDeviceGetPerformanceState": gpu.value("Performance State", read=_lettered),
        "nvmlDeviceGetFanSpeed": gpu.number("Fan Speed", units=smi_output.SHARE),
        **_field("GET_GPU_RECOVERY_ACTION", action),
    }


def _lettered(text: str) -> Answer:
    """A number with a letter at one end, such as 16x or P0."""
    found = LETTERED.match(text)
    return int(found[1]) if found else failure(text)


def _flag(text: str) -> Answer:
    """Yes or No as 1 or 0."""
    return YES.get(text, failure(text))


def _memory_health(gpu: OutputSection) -> dict[str, Answer]:
    retired, errors = gpu.part("Retired Pages"), gpu.part("ECC Errors")
    remapped = gpu.part("Remapped Rows")
    rows = {
        "correctable": remapped.number("Correctable Error"),
        "uncorrectable": remapped.number("Uncorrectable Error"),
        "pending": remapped.value("Pending", read=_flag),
        "failure": remapped.value("Remapping Failure Occurred", read=_flag),
    }
    # Drivers before 450 say only "Pending".
    pending = retired.value("Pending Page Blacklist", "Pending", read=_flag)
    return {
        "nvmlDeviceGetRemappedRows": together(rows, lambda values: list(values.values())),
        **_field("RETIRED_SBE", retired.number("Single Bit ECC")),
        **_field("RETIRED_DBE", retired.number("Double Bit ECC")),
        **_field("RETIRED_PENDING", pending),
        **_field("ECC_SBE_VOL_TOTAL", _errors(errors.part("Volatile"), "Single Bit", "Correctable")),
        **_field("ECC_DBE_VOL_TOTAL", _errors(errors.part("Volatile"), "Double Bit", "Uncorrectable")),
        **_field("ECC_SBE_AGG_TOTAL", _errors(errors.part("Aggregate"), "Single Bit", "Correctable")),
        **_field("ECC_DBE_AGG_TOTAL", _errors(errors.part("Aggregate"), "Double Bit", "Uncorrectable")),
    }


def _repairs(gpu: OutputSection) -> dict[str, Answer]:
    """Pending repairs, and SRAM errors in the GPU's life."""
    errors = gpu.part("ECC Errors")
    total, sources = errors.part("Aggregate"), errors.part("Aggregate Uncorrectable SRAM Sources")
    pending = {
        f"b{part}RepairPending": errors.value(f"{part} Repair Pending", read=_flag) for part in ("Channel", "Tpc")
    }
    sram = {
        "bThresholdExceeded": total.value("SRAM Threshold Exceeded", read=_flag),
        **{f"aggregateUncBucket{member}": sources.number(f"SRAM {unit}") for unit, member in UNITS.items()},
    }
    unrepairable = errors.value("Unrepairable Memory", read=_flag)
    return {
        REPAIR_CALL: together(pending, dict),
        # The counts of errors by kind are those of other calls.
        SRAM_CALL: together(sram, lambda values: {**dict.fromkeys(SRAM_COUNTS, 0), **values}),
        UNREPAIRABLE_CALL: together({"unrepairableMemory": unrepairable}, dict),
    }


def _fabric(fabric: OutputSection) -> dict[str, Answer]:
    """The fabric's structure of version 3; what the output calls N/A within it, the driver does not support."""
    health = fabric.part("Health")
    mask = {shift: _fault(health.text_of(line), fine) for line, (shift, fine) in FABRIC_HEALTH.items()}
    members = {
        "state": fabric.value("State", read=lambda text: FABRIC_STATES.get(text, failure(text))),
        "status": fabric.value("Status", read=_status),
        "cliqueId": fabric.number("CliqueId"),
        "clusterUuid": fabric.value("ClusterUUID", read=_uuid_bytes),
        "healthMask": sum(value << shift for shift, value in mask.items()),
        "healthSummary": FABRIC_SUMMARIES.get(health.text_of("Summary"), 0),
    }
    # Drivers before 550 show the state and the status only.
    unshown = {name: none for name, none in NO_CLUSTER.items() if members[name] == NOT_SHOWN}
    return {FABRIC_CALL: together(members | unshown, dict)}


def _fault(text: str, fine: str) -> int:
    """A part of the health mask: 0 not supported, else as `FABRIC_HEALTH` has it for a text that is fine or not."""
    if not text or is_failure(text):
        return 0
    is_configuration = fine == "None"
    return (1 if text == fine else 2) if is_configuration else (2 if text == fine else 1)


def _status(text: str) -> Answer:
    unknown = failure(text) if is_failure(text) else pynvml.NVML_ERROR_UNKNOWN
    return STATUSES.get(text.casefold(), unknown)


def _uuid_bytes(text: str) -> Answer:
    try:
        return list(uuid.UUID(text).bytes)
    except ValueError:
        return failure(text)


def _instance(gpu: OutputSection, instance: OutputSection) -> dict[str, Answer]:
    gi_id, ci_id = instance.text_of("GPU Instance ID") or "0", instance.text_of("Compute Instance ID") or "0"
    return {
        "nvmlDeviceGetUUID": f"MIG-{_uuid(gpu)}/{gi_id}/{ci_id}",
        # The output does not name the profile.
        "nvmlDeviceGetName": f"{_shown(gpu, 'Product Name')} MIG ",
        "nvmlDeviceGetGpuInstanceId": int(gi_id),
        "nvmlDeviceGetMemoryInfo": _memory(instance.part("Shared FB Memory Usage", "FB Memory Usage")),
        **_processes(gpu, gi_id, ci_id),
    }


def _process_names(gpus: list[OutputSection]) -> dict[str, str]:
    """The program's name of each process, without its folder, where the output has it."""
    parts = [part for gpu in gpus for part in gpu.part("Processes").parts if part.name == "Process ID"]
    paths = {part.text: _line(part, "Name") for part in parts}
    return {
        f"nvmlSystemGetProcessName:{pid}": re.split(r"[/\\]", ARGUMENTS.split(path)[0])[-1]
        for pid, path in paths.items()
        if path not in ("", "-") and not path.startswith("[") and not is_failure(path)
    }


def _line(process: OutputSection, name: str) -> str:
    return process.part(name).text


def _processes(gpu: OutputSection, gi_id: str = WHOLE, ci_id: str = WHOLE) -> dict[str, Answer]:
    """The processes of a GPU, or of one compute instance: two lines that name both instances precede each process."""
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS.values()}
    of_gpu_instance = of_compute_instance = gi_id == WHOLE
    for part in gpu.part("Processes").parts:
        if part.name == "GPU instance ID":
            of_gpu_instance, of_compute_instance = part.text == gi_id, True
        elif part.name == "Compute instance ID":
            of_compute_instance = part.text == ci_id
        elif part.name == "Process ID" and part.text.isdecimal() and of_gpu_instance and of_compute_instance:
            memory = OutputSection(parts=part.parts).number("Used GPU Memory", units=smi_output.MEMORY)
            found[KINDS.get(_line(part, "Type"), "Compute")].append(
                {"pid": int(part.text), "usedGpuMemory": None if is_error(memory) else memory}
            )
    return {f"nvmlDeviceGet{kind}RunningProcesses": processes for kind, processes in found.items()}


def _memory(section: OutputSection) -> Answer:
    """Sizes in bytes. Drivers before 510 do not print the reserved memory, and count it as used."""
    sizes = {name: section.number(name, units=smi_output.MEMORY) for name in ("total", "reserved", "used", "free")}
    if sizes["reserved"] == NOT_SHOWN:
        del sizes["reserved"]
    return together(sizes, dict)


def _reasons(gpu: OutputSection) -> Answer:
    section = gpu.part("Clocks Event Reasons", "Clocks Throttle Reasons")
    flags = {name: section.value(name, read=lambda text: ACTIVE.get(text, failure(text))) for name in REASONS}
    known = {name: flag for name, flag in flags.items() if not is_error(flag)}
    if not known:
        return together(flags, dict)
    return sum(flag << CLOCK_EVENTS.index(REASONS[name]) for name, flag in known.items())


def _errors(section: OutputSection, bits: str, kind: str) -> Answer:
    """The sum of a kind of memory errors; GPUs before Turing count by bits, and print the total."""
    by_bits = section.part(bits)
    if by_bits.parts or by_bits.text:
        return by_bits.number("Total")
    lines = [line.name for line in section.parts if f" {kind}" in line.name] or [kind]
    counts = {name: section.number(name) for name in lines}
    known = {name: count for name, count in counts.items() if not is_error(count)}
    return together(known or counts, lambda values: sum(values.values()))


def memory_temperature(value: Answer) -> dict[str, Answer]:
    """The answer of the field of the memory's temperature."""
    return _field("MEMORY_TEMP", value)


def _field(name: str, value: Answer) -> dict[str, Answer]:
    call = f"nvmlDeviceGetFieldValues:{getattr(pynvml, f'NVML_FI_DEV_{name}')}:0"
    answer = {"valueType": pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, "value": value}
    return {call: value if is_error(value) else answer}


def _pair(value: Answer) -> Answer:
    return value if is_error(value) else [value, 0]
