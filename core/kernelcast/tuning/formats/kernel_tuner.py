"""Reads and writes recorded spaces: Kernel Tuner cache files, with every configuration measured; reads T4 results too.

The oracle answers from one; `measurements` reads them as well. Sources: KernelTuner/kernel_tuner,
kernel_tuner/schema/cache and schema/T4/1.0.0/results-schema.json (times in milliseconds).
"""

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from kernelcast.tuning.space import Value
from kernelcast.wire.errors import ConfigurationError

MAX_FILE_BYTES: Final = 1 << 30
"""Of the decompressed content, because a small file can unpack to any length."""
COMPILE: Final = "compile"
RUNTIME: Final = "runtime"
"""Values of `Recorded.failed`: the configuration did not compile, or failed when it ran."""
FAILED_TIME: Final = 1e20
"""Kernel Tuner's time of a configuration that failed, in files of its older versions."""
_CORRECT: Final = "correct"
_TIME: Final = "time"
_UNITS: Final = {"nanoseconds": "ns", "microseconds": "us", "milliseconds": "ms", "seconds": "s"}
"""Units that KTT writes out. Source: HiPerCoRe/KTT, Scripts/ConvertJsonOutput.py."""
_OTHER_FORMATS: Final = {
    "Results": "KTT's own output; convert it to T4 results with KTT's Scripts/ConvertJsonOutput.py",
    "configs_timings": "a cache of Triton's autotuner, which names neither kernel nor device; tune the kernel here",
}
"""Formats of other tuners, by a field of theirs."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The measurements of one configuration.

    Attributes:
        times: Recorded times of single launches, in order; empty for a failing configuration.
        failed: `compile` or `runtime`; empty where it ran.
    """

    times: tuple[float, ...] = ()
    failed: str = ""

    @property
    def typical(self) -> float:
        """Mean of the launches after the first, which is cold."""
        return fmean(self.times[1:] or self.times)


@dataclass(frozen=True)
class KernelTunerRecording:
    """A recorded space.

    Attributes:
        kernel: Name of the kernel.
        device: Name of the device.
        unit: Unit of the times.
        parameters: Values by parameter.
        entries: Measurements by configuration, a value for each parameter in order.
    """

    kernel: str
    device: str
    unit: str
    parameters: Mapping[str, tuple[Value, ...]]
    entries: Mapping[tuple[Value, ...], Recorded]

    @cached_property
    def typical(self) -> Mapping[tuple[Value, ...], float]:
        """Typical times of the configurations that ran."""
        return {one: entry.typical for one, entry in self.entries.items() if not entry.failed}


def read(path: Path) -> KernelTunerRecording:
    """Read a cache file or T4 results, plain or compressed with gzip.

    Raises:
        ConfigurationError: The file cannot be read, or is neither.
    """
    recording = parse(path, load(path))
    for place, (name, values) in enumerate(recording.parameters.items()):
        unlisted = [value for value in {one[place] for one in recording.entries} if value not in values]
        if unlisted:
            raise ConfigurationError(
                f"{path} has the value {unlisted[0]!r} of {name}, which its tune_params do not list; record it again"
            )
    return recording


def load(path: Path) -> Any:
    """Return the content of a JSON file, plain or compressed with gzip.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    try:
        with path.open("rb") as file, gzip.open(file) if path.suffix == ".gz" else file as plain:
            content = plain.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigurationError(f"{path} has more than {MAX_FILE_BYTES:,} bytes; give a smaller file")
        return _parsed(content.decode("utf-8"))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}; give a JSON file, plain or as .json.gz") from None


def _parsed(text: str) -> Any:
    """Parse JSON; of a cache file that Kernel Tuner has open, or had when it was killed, the whole entries."""
    try:
        return json.loads(text)
    except ValueError:
        entries = text[: text.rfind("},") + 1]
        with suppress(ValueError):
            return json.loads(entries + "}}")
        raise


def parse(path: Path, document: Any) -> KernelTunerRecording:
    """Make a recording from the content of a cache file or of T4 results.

    A configuration whose `time` is a string or `FAILED_TIME` failed, whatever its other fields hold; one without a
    `time`, which was tuned for another quantity, is left out.

    Raises:
        ConfigurationError: It is neither.
    """
    other = _OTHER_FORMATS.keys() & (document.keys() if isinstance(document, dict) else ())
    if other:
        raise ConfigurationError(f"{path} is {_OTHER_FORMATS[other.pop()]}")
    try:
        if "results" in document and "tune_params_keys" not in document:
            return _complete(path, _of_results(document["results"]))
        keys = [str(key) for key in document["tune_params_keys"]]
        parameters = {key: tuple(document["tune_params"][key]) for key in keys}
        measured = [entry for entry in document["cache"].values() if _TIME in entry]
        entries = {tuple(entry[key] for key in keys): _recorded(entry) for entry in measured}
        kernel, device = str(document.get("kernel_name", "")), str(document.get("device_name", ""))
        unit = str(document.get("time_unit", "ms"))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        fields = ", ".join(list(document)[:8]) if isinstance(document, dict) else type(document).__name__
        raise ConfigurationError(
            f"{path} is no Kernel Tuner cache file and no T4 results: {error!r}; it has {fields[:200]}; give a file "
            "with tune_params_keys, tune_params and cache, or one with results"
        ) from None
    recording = KernelTunerRecording(kernel or "kernel", device or "unknown", unit, parameters, entries)
    return _complete(path, recording)


def _complete(path: Path, recording: KernelTunerRecording) -> KernelTunerRecording:
    if all(entry.failed for entry in recording.entries.values()):
        raise ConfigurationError(f"{path} has no configuration that ran; give a complete recording")
    return recording


def _of_results(results: Sequence[Mapping[str, Any]]) -> KernelTunerRecording:
    """T4 results name no kernel and no device, and the parameters only by the configurations."""
    keys = list(dict.fromkeys(key for result in results for key in result["configuration"]))
    entries = {tuple(result["configuration"][key] for key in keys): _result(result) for result in results}
    parameters = {key: tuple(dict.fromkeys(one[place] for one in entries)) for place, key in enumerate(keys)}
    return KernelTunerRecording("kernel", "unknown", _unit(results), parameters, entries)


def _unit(results: Sequence[Mapping[str, Any]]) -> str:
    """The unit of the objective: of T4 results milliseconds, unless the measurements have another one."""
    units = {
        str(measurement["unit"])
        for result in results
        for measurement in result.get("measurements", ())
        if measurement.get("name") in (_TIME, *result.get("objectives", ())) and measurement.get("unit")
    }
    unit = units.pop() if len(units) == 1 else "ms"
    return _UNITS.get(unit.lower(), unit)


def _result(result: Mapping[str, Any]) -> Recorded:
    invalidity = result["invalidity"]
    if invalidity != _CORRECT:
        return Recorded(failed=COMPILE if invalidity == "compile" else RUNTIME)
    measured = [one.get("value") for one in result.get("measurements", ()) if one.get("name") == _TIME]
    times = tuple(float(one) for one in result.get("times", {}).get("runtimes") or measured if is_time(one))
    return Recorded(times=times) if times else Recorded(failed=RUNTIME)


def _recorded(entry: Mapping[str, Any]) -> Recorded:
    time = entry[_TIME]
    if isinstance(time, int | float) and time >= FAILED_TIME:
        return Recorded(failed=RUNTIME)
    if isinstance(time, str):
        return Recorded(failed=COMPILE if "compil" in time.lower() else RUNTIME)
    times = tuple(float(one) for one in entry.get("times") or (time,) if is_time(one))
    return Recorded(times=times) if times else Recorded(failed=RUNTIME)


def is_time(value: Any) -> bool:
    """Whether a value of JSON is a time: a number above 0, and below the one that says that there is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < FAILED_TIME


def document(recording: KernelTunerRecording) -> dict[str, Any]:
    """Return a recording as the content of a cache file."""
    names = list(recording.parameters)
    return {
        "device_name": recording.device,
        "kernel_name": recording.kernel,
        "tune_params_keys": names,
        "tune_params": {name: list(values) for name, values in recording.parameters.items()},
        "objective": "time",
        "time_unit": recording.unit,
        "cache": {
            ",".join(map(str, one)): {**dict(zip(names, one, strict=True)), **_entry(entry)}
            for one, entry in recording.entries.items()
        },
    }


def _entry(entry: Recorded) -> dict[str, Any]:
    if entry.failed:
        return {"time": "CompilationFailedConfig" if entry.failed == COMPILE else "RuntimeFailedConfig", "times": []}
    return {"time": fmean(entry.times), "times": list(entry.times)}
