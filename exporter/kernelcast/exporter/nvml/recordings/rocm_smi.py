"""Converts what `rocm-smi --showallinfo --json` printed to a recording of NVML: the rows that an AMD GPU has as well.

Each value becomes NVML's answer to the call that gives that row; what rocm-smi does not print is absent, as with
`nvidia-smi`. Words of ROCm 4 to 6. Source: captures of influxdata/telegraf, plugins/inputs/amd_rocm_smi/testdata.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pynvml

from kernelcast.exporter.nvml.recordings.nvidia_smi import UNSHOWN_CALLS, memory_temperature
from kernelcast.exporter.nvml.recordings.recording import NODE, Answers, RecordedChanges, Recording, changes
from kernelcast.exporter.nvml.recordings.smi_output import NOT_SHOWN, Answer, OutputSection, together
from kernelcast.wire.errors import TraceError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

CARD: Final = re.compile(r"card\d+")
OBJECT: Final = re.compile(r"^\s*\{", re.MULTILINE)
LINK: Final = re.compile(r"\(([\d.]+)GT/s x(\d+)\)")
GENERATIONS: Final = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
"""PCIe generation by transfers per second of a lane, in GT/s."""
UNKNOWN: Final = frozenset({"", "0", "N/A"})
MILLIWATTS: Final = {"": 1000}
CLOCK: Final = {"Mhz": 1}


def read_capture(path: Path) -> Recording:
    """Read a file with one or more such outputs, one after the other; moments are a second apart.

    Raises:
        TraceError: It cannot be read, or holds none.
    """
    try:
        read = list(_objects(path.read_text(errors="replace")))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error}; write it with `rocm-smi --showallinfo --json`") from None
    outputs = [one for one in read if one and any(map(CARD.fullmatch, one))]
    if not outputs:
        raise TraceError(
            f"{path} has no card in whole JSON of rocm-smi (amd-smi's is not read); "
            "write it with `rocm-smi --showallinfo --json`"
        )
    damaged = read.count(None)
    note = f"outputs that are cut, and left out: {damaged}" if damaged else ""
    return Recording(tuple(_moments(outputs)), note)


def _objects(text: str) -> Iterator[Mapping[str, Any] | None]:
    """The JSON objects of a text, None for one that is cut.

    rocm-smi prints warnings, such as one of a low-power state, before and between them.
    """
    decoder, at = json.JSONDecoder(), 0
    while begin := OBJECT.search(text, at):
        try:
            found, at = decoder.raw_decode(text, begin.end() - 1)
        except (ValueError, RecursionError):
            found, at = None, begin.end()
        yield found


def _moments(outputs: list[Mapping[str, Any]]) -> Iterator[RecordedChanges]:
    before = Answers()
    for number, output in enumerate(outputs):
        now = _answers(output)
        yield RecordedChanges(number * NANOSECONDS_PER_SECOND, changes(before, now))
        before = now


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
