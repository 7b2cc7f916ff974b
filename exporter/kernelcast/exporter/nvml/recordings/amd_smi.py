"""Converts what `amd-smi metric --json` printed to a recording of NVML: the rows that an AMD GPU has as well.

amd-smi follows rocm-smi from ROCm 6 on. It prints a list of GPUs, from version 26 on an object with the list
`gpu_data`; with `--watch` one after the other. A value is a number with its unit, or `N/A`. Sources: ROCm/amdsmi 134,
ROCm/rocm-systems 2720, henrygd/beszel 737.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pynvml

from kernelcast.exporter.nvml.recordings import smi_output
from kernelcast.exporter.nvml.recordings.amd_output import GENERATIONS, objects, recording
from kernelcast.exporter.nvml.recordings.nvidia_smi import UNSHOWN_CALLS, memory_temperature
from kernelcast.exporter.nvml.recordings.recording import NODE, Answers, Recording
from kernelcast.exporter.nvml.recordings.smi_output import NOT_SHOWN, Answer, OutputSection, failure, together
from kernelcast.wire.errors import TraceError

COMMAND: Final = "amd-smi metric --json"
SPEED_UNIT: Final = " GT/s"

Gpus = Mapping[int, Mapping[str, Any]]
"""The metrics of each GPU of one output, by its number."""


def read_capture(path: Path) -> Recording:
    """Read a file with one or more such outputs, one after the other; moments are a second apart.

    Raises:
        TraceError: It cannot be read, or holds none.
    """
    try:
        documents = list(objects(path.read_text(errors="replace")))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error}; write it with `{COMMAND}`") from None
    outputs = list(_outputs(filter(None, documents)))
    if not outputs:
        raise TraceError(f"{path} has no GPU in whole JSON of amd-smi; write it with `{COMMAND}`")
    damaged = documents.count(None)
    if damaged and len(outputs) > 1 and len(outputs[-1]) < len(outputs[-2]):
        del outputs[-1]  # the GPUs before the cut
    return recording([_answers(output) for output in outputs], damaged)


def _outputs(documents: Iterable[Mapping[str, Any]]) -> Iterator[Gpus]:
    """Group GPUs to outputs: the next one begins where a GPU is there again."""
    gpus: dict[int, Mapping[str, Any]] = {}
    for document in documents:
        gpu_data = document.get("gpu_data", [document])
        for metrics in gpu_data if isinstance(gpu_data, list) else ():
            number = metrics.get("gpu") if isinstance(metrics, dict) else None
            if not isinstance(number, int):
                continue
            if number in gpus:
                yield gpus
                gpus = {}
            gpus[number] = metrics
    if gpus:
        yield gpus


def _answers(output: Gpus) -> Answers:
    answers: Answers = {NODE: {"nvmlDeviceGetCount": len(output), "nvmlSystemGetDriverVersion": ""}}
    for index, (number, metrics) in enumerate(sorted(output.items())):
        unshown = {call: dict(NOT_SHOWN) for call in UNSHOWN_CALLS}
        identity = {
            "nvmlDeviceGetUUID": f"AMD-{number}",
            "nvmlDeviceGetName": "AMD GPU",
            "nvmlDeviceGetPciInfo": {"busId": ""},
            "nvmlDeviceGetMigMode": [0, 0],
        }
        answers[str(index)] = unshown | identity | _values(_section(str(number), metrics))
    return answers


def _section(name: str, value: Any) -> OutputSection:
    """A value of the JSON as lines; `{"value": 41, "unit": "W"}` is the line `41 W`."""
    if not isinstance(value, dict):
        return OutputSection(name, str(value))
    if "value" in value:
        return OutputSection(name, f"{value['value']} {value.get('unit', '')}".strip())
    return OutputSection(name, parts=[_section(part, inner) for part, inner in value.items()])


def _values(gpu: OutputSection) -> dict[str, Answer]:
    usage, heat, link, memory = (gpu.part(name) for name in ("usage", "temperature", "pcie", "mem_usage"))
    rates = {
        "gpu": usage.number("gfx_activity", units=smi_output.SHARE),
        "memory": usage.number("umc_activity", units=smi_output.SHARE),
    }
    sizes = {name: memory.number(f"{name}_vram", units=smi_output.MEMORY) for name in ("total", "used")}
    clocks = {pynvml.NVML_CLOCK_SM: "gfx_0", pynvml.NVML_CLOCK_MEM: "mem_0"}
    return {
        f"nvmlDeviceGetTemperature:{pynvml.NVML_TEMPERATURE_GPU}": heat.number(
            "edge", "hotspot", units=smi_output.TEMPERATURE
        ),
        **memory_temperature(heat.number("mem", units=smi_output.TEMPERATURE)),
        **{
            f"nvmlDeviceGetClockInfo:{clock}": gpu.part("clock").part(name).number("clk", units=smi_output.CLOCK)
            for clock, name in clocks.items()
        },
        "nvmlDeviceGetPowerUsage": gpu.part("power").number(
            "socket_power", "current_socket_power", "average_socket_power", units=smi_output.POWER
        ),
        "nvmlDeviceGetUtilizationRates": together(rates, dict),
        "nvmlDeviceGetPcieReplayCounter": link.number("replay_count"),
        "nvmlDeviceGetCurrPcieLinkGeneration": link.value("speed", read=_generation),
        "nvmlDeviceGetCurrPcieLinkWidth": link.number("width"),
        "nvmlDeviceGetFanSpeed": gpu.part("fan").number("usage", units=smi_output.SHARE),
        "nvmlDeviceGetMemoryInfo": together(sizes, lambda known: known | {"free": known["total"] - known["used"]}),
    }


def _generation(speed: str) -> Answer:
    """The PCIe generation of a lane of so many GT/s."""
    try:
        return GENERATIONS.get(float(speed.removesuffix(SPEED_UNIT)), dict(NOT_SHOWN))
    except ValueError:
        return failure(speed)
