"""Measurements of a campaign as JSON: one campaign writes them, the next one, on this or another device, reads them.

`python -m lab.tune_replay --warm-from` reads it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernelcast.tuning.formats import kernel_tuner
from kernelcast.tuning.space import Space, Value
from kernelcast.wire.errors import ConfigurationError

FORMAT: Final = "kernelcast.measurements/1"


@dataclass(frozen=True)
class Measurements:
    """Times of configurations on one device.

    Attributes:
        device: The device.
        unit: Unit of the times.
        names: The parameters' names, in the order of the values.
        times: Times by configuration; None for a failing one.
        kept: The configuration that a verdict has kept; None without one.
    """

    device: str
    unit: str
    names: tuple[str, ...]
    times: Mapping[tuple[Value, ...], float | None]
    kept: tuple[Value, ...] | None = None

    def ordered(self, space: Space) -> dict[tuple[Value, ...], float | None]:
        """Return the times with values in the order of a space's parameters; empty if a parameter is missing.

        One with a single value in the space may be missing. Values that the space does not have stay.
        """
        fixed = {one.name: one.values[0] for one in space.parameters if len(one.values) == 1}
        wanted = [one.name for one in space.parameters]
        if set(wanted) - set(fixed) - set(self.names):
            return {}
        found = {}
        for values, time in self.times.items():
            given = {**fixed, **dict(zip(self.names, values, strict=True))}
            found[tuple(given[name] for name in wanted)] = time
        return found

    def to_document(self) -> dict[str, Any]:
        """Return the measurements in JSON's types."""
        return {
            "format": FORMAT,
            "device": self.device,
            "unit": self.unit,
            "parameters": list(self.names),
            "measurements": [
                {"config": list(values), **({"failed": True} if time is None else {"time": time})}
                for values, time in self.times.items()
            ],
            "kept": None if self.kept is None else list(self.kept),
        }


def read(path: Path) -> Measurements:
    """Read measurements from our JSON or from a Kernel Tuner cache file, plain or compressed with gzip.

    Raises:
        ConfigurationError: The file cannot be read, or has another format.
    """
    document = kernel_tuner.load(path)
    if isinstance(document, dict) and str(document.get("format", "")).startswith("kernelcast."):
        return _parse(path, document)
    recording = kernel_tuner.parse(path, document)
    times = {one: None if entry.failed else entry.typical for one, entry in recording.entries.items()}
    return Measurements(recording.device, recording.unit, tuple(recording.parameters), times)


def write(path: Path, measurements: Measurements) -> None:
    """Write measurements as our JSON.

    Raises:
        ConfigurationError: The file cannot be written.
    """
    try:
        path.write_text(json.dumps(measurements.to_document(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error}; give another path") from None


def _parse(path: Path, document: Mapping[str, Any]) -> Measurements:
    if document["format"] != FORMAT:
        raise ConfigurationError(
            f"{path} has the format {document['format']}; this version reads {FORMAT}; export it again"
        )
    try:
        names = tuple(map(str, document["parameters"]))
        times = {_configuration(one, names): _time(one) for one in document["measurements"]}
        kept = document.get("kept")
        return Measurements(
            str(document.get("device", "")),
            str(document.get("unit", "")),
            names,
            times,
            None if kept is None else _configuration({"config": kept}, names),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ConfigurationError(f"{path} cannot be read as {FORMAT}: {error!r}; export it again") from None


def _configuration(entry: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Value, ...]:
    values = tuple(entry["config"])
    if not isinstance(entry["config"], list) or len(values) != len(names):
        raise ValueError(f"the configuration {values} has not the {len(names)} values of the parameters")
    return values


def _time(entry: Mapping[str, Any]) -> float | None:
    if entry.get("failed"):
        return None
    time = float(entry["time"])
    if not kernel_tuner.is_time(time):
        raise ValueError(f"the time {time} is not positive and finite")
    return time
