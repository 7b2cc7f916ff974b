"""Converts what `rocm-smi --showallinfo --json` printed to a recording of NVML: the rows that an AMD GPU has as well.

Each value becomes NVML's answer to the call that gives that row; what rocm-smi does not print is absent, as with
`nvidia-smi`. Words of ROCm 4 to 6. Source: captures of influxdata/telegraf, plugins/inputs/amd_rocm_smi/testdata.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pynvml

from kernelcast.exporter.nvml.recordings.amd_output import GENERATIONS, objects, recording
from kernelcast.exporter.nvml.recordings.nvidia_smi import UNSHOWN_CALLS, memory_temperature
from kernelcast.exporter.nvml.recordings.recording import NODE, Answers, Recording
from kernelcast.exporter.nvml.recordings.smi_output import NOT_SHOWN, Answer, OutputSection, together
from kernelcast.wire.errors import TraceError

CARD: Final = re.compile(r"card\d+")
LINK: Final = re.compile(r"\(([\d.]+)GT/s x(\d+)\)")
UNKNOWN: Final = frozenset({"", "0", "N/A"})
MILLIWATTS: Final = {"": 1000}
CLOCK: Final = {"Mhz": 1}


def read_capture(path: Path) -> Recording:
    """Read a file with one or more such outputs, one after the other; moments are a second apart.

    Raises:
        TraceError: It cannot be read, or holds none.
    """
    try:
        documents = list(objects(path.read_text(errors="replace")))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error}; write it with `rocm-smi --showallinfo --json`") from None
    outputs = [document for document in documents if document and any(map(CARD.fullmatch, document))]
    if not outputs:
        raise TraceError(f"{path} has no card in whole JSON of rocm-smi; write it with `rocm-smi --showallinfo --json`")
    return recording([_answers(output) for output in outputs], documents.count(None))


def _answers(output: Mapping[str, Any]) -> Answers:
    cards = [_section(lines) for name, lines in output.items() if CARD.fullmatch(name)]
    system = _section(output.get("system", {}))
    answers: Answers = {
        NODE: {
            "nvmlDeviceGetCount": len(cards),
            "nvmlSystemGetDriverVersion": system.text_of("Driver version"),
        }
    }
    identifiers = [_identifier(card) for card in cards]
    for index, (card, identifier) in enumerate(zip(cards, identifiers, strict=True)):
        # The partitions of an MI300 have the identifiers of their whole.
        is_partition = identifiers.count(identifier) > 1
        uuid = f"{identifier}/{index}" if identifier and is_partition else identifier or str(index)
        unshown = {call: dict(NOT_SHOWN) for call in UNSHOWN_CALLS}
        answers[str(index)] = unshown | _identity(card, uuid) | _values(card)
    return answers


def _section(lines: Mapping[str, Any]) -> OutputSection:
    """The lines of a card; `N/A (Secondary die)` is N/A, and `(300Mhz)` loses its parentheses."""
    texts = {name: str(value).strip() for name, value in lines.items()}
    return OutputSection(
        parts=[
            OutputSection(name.rstrip(":"), "N/A" if text.startswith("N/A") else text.strip("()"))
            for name, text in texts.items()
        ]
    )


def _identifier(card: OutputSection) -> str:
    """Return the first identifier that a card has; empty if it has none."""
    identifiers = map(card.text_of, ("Unique ID", "Serial Number", "PCI Bus"))
    return next((identifier for identifier in identifiers if identifier not in UNKNOWN), "")


def _identity(card: OutputSection, uuid: str) -> dict[str, Answer]:
    address, serial = card.text_of("PCI Bus"), card.text_of("Serial Number")
    names = [card.text_of(name) for name in ("Card series", "Card model", "Card SKU")]
    return {
        "nvmlDeviceGetUUID": f"AMD-{uuid}",
        "nvmlDeviceGetName": next((name for name in names if name and not name.startswith("0x")), "AMD GPU"),
        "nvmlDeviceGetPciInfo": {"busId": address},
        "nvmlDeviceGetMigMode": [0, 0],
        "nvmlDeviceGetSerial": serial if serial not in UNKNOWN else dict(NOT_SHOWN),
        "nvmlDeviceGetVbiosVersion": card.text_of("VBIOS version") or dict(NOT_SHOWN),
    }


def _values(card: OutputSection) -> dict[str, Answer]:
    rates = {
        "gpu": card.number("GPU use (%)"),
        "memory": card.number("GPU memory use (%)", "GPU Memory Read/Write Activity (%)"),
    }
    return {
        f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_SM}": card.number("sclk clock speed", units=CLOCK),
        f"nvmlDeviceGetClockInfo:{pynvml.NVML_CLOCK_MEM}": card.number("mclk clock speed", units=CLOCK),
        f"nvmlDeviceGetTemperature:{pynvml.NVML_TEMPERATURE_GPU}": card.number(
            "Temperature (Sensor edge) (C)", "Temperature (Sensor junction) (C)"
        ),
        **memory_temperature(card.number("Temperature (Sensor memory) (C)")),
        "nvmlDeviceGetPowerUsage": card.number(
            "Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)", units=MILLIWATTS
        ),
        "nvmlDeviceGetEnforcedPowerLimit": card.number("Max Graphics Package Power (W)", units=MILLIWATTS),
        "nvmlDeviceGetUtilizationRates": together(rates, dict),
        "nvmlDeviceGetPcieReplayCounter": card.number("PCIe Replay Count"),
        "nvmlDeviceGetFanSpeed": card.number("Fan speed (%)"),
        "nvmlDeviceGetMemoryInfo": _memory(card),
        **_link(card.text_of("pcie clock level")),
    }


def _memory(card: OutputSection) -> Answer:
    sizes = {"total": card.number("VRAM Total Memory (B)"), "used": card.number("VRAM Total Used Memory (B)")}
    return together(sizes, lambda known: known | {"free": known["total"] - known["used"]})


def _link(level: str) -> dict[str, Answer]:
    """Generation and width now, of `1 (16.0GT/s x16)`."""
    found = LINK.search(f"({level.partition('(')[2].rstrip(')')})")
    if found is None:
        return {}
    generation = GENERATIONS.get(float(found[1]), dict(NOT_SHOWN))
    return {
        "nvmlDeviceGetCurrPcieLinkGeneration": generation,
        "nvmlDeviceGetCurrPcieLinkWidth": int(found[2]),
    }
