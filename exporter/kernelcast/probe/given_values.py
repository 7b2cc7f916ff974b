"""Reads the variable `KERNELCAST_SET`, which gives values to the tunables and spaces of a program at its start.

`{"NAME": "VALUE"}` is the first value of a tunable. `@FILE` is a file of kept configurations, as `kernelcast hints
export` writes it: those of this program, device model and code version count as kept in an earlier run. For a value
that cannot be used, standard error has the reason, and the program's own value stays.
"""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kernelcast.probe.process.machine import models_of
from kernelcast.probe.tunables import Value, text
from kernelcast.tuning.journal import KeptConfiguration
from kernelcast.tuning.journal.lines import read
from kernelcast.wire.frames import DeviceClaim

SET: Final = "KERNELCAST_SET"
FILE_MARK: Final = "@"
UNKNOWN_DRIVER: Final = "unknown"
"""Driver of a configuration that another node has kept. It differs from this node's, so the value is checked here."""


def set_outside(name: str, allowed: Sequence[Value], value: Value) -> Value:
    """Return the first value that the environment gives a tunable, if it is allowed; else the program's own."""
    setting = os.environ.get(SET, "")
    if not setting or setting.startswith(FILE_MARK):
        return value
    try:
        requested = json.loads(setting).get(name)
    except (ValueError, AttributeError, RecursionError):
        warn(f"{SET} is {setting[:80]!r}; it must be a JSON object of names and values, or @FILE")
        return value
    if requested is None:
        return value
    for allowed_value in allowed:
        if text(allowed_value) == str(requested):
            return allowed_value
    warn(f"{SET} sets {name} to {requested!r}; it allows {', '.join(map(text, allowed))}; {text(value)} stays")
    return value


class GivenConfigurations:
    """Finds kept configurations of a file that fit this program on this machine. Any thread may use it.

    Args:
        path: The file: on each line a JSON object with `program`, `device_model`, `code_version`, `tunable` and
            `value`. The first that fits counts. A field that is missing or empty fits everything.
        program: Name of the program.
        models: Returns the models of its devices.
        warn: Receives the reasons for which configurations are not used, each reason once.
    """

    def __init__(
        self,
        path: str,
        program: str,
        models: Callable[[], Iterable[str]],
        warn: Callable[[str], None],
    ) -> None:
        self._path = path
        self._program = program
        self._models = models
        self._warn = warn
        self._warnings: set[str] = set()
        self._rows: dict[str, list[Mapping[str, Any]]] = {}
        try:
            rows = [row for row in read(Path(path)) if isinstance(row.get("value"), str)]
        except OSError as error:
            self._warn_once(f"cannot be read: {error}")
            return
        for row in rows:
            self._rows.setdefault(str(row.get("tunable")), []).append(row)
        if not rows:
            self._warn_once("has no kept configuration; write it by `kernelcast hints export`")

    def find(self, space: str, code_version: str) -> KeptConfiguration | None:
        """Return the configuration of a space or tunable that fits; None, with a warning if others are in the file."""
        rows = self._rows.get(space, ())
        if not rows:
            return None
        fitting = {
            "program": (self._program,),
            "device_model": tuple(self._models()),
            "code_version": (code_version,),
        }
        mismatches = []
        for row in rows:
            field = next((name for name, values in fitting.items() if row.get(name) and row[name] not in values), "")
            if not field:
                return KeptConfiguration(row["value"], 0.0, UNKNOWN_DRIVER, str(row.get("approved_by") or ""))
            mismatches.append((field, row[field]))
        field, value = mismatches[0]
        own = " or ".join(map(repr, fitting[field])) or "not known"
        self._warn_once(f"has {space} for {field} {value!r}, and this is {own}; it is not applied")
        return None

    def refused(self, space: str, config: str, reason: str) -> None:
        """Warn that a configuration of the file is not in force."""
        self._warn_once(f"has {config} for {space}, which is not applied: {reason}")

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warnings:
            self._warnings.add(sentence)
            self._warn(f"{SET}={FILE_MARK}{self._path} {sentence}")


def given_configurations(
    environ: Mapping[str, str], program: str, devices: Callable[[], Iterable[DeviceClaim]], *, remembers: bool
) -> GivenConfigurations | None:
    """Return the kept configurations of the file that the environment names; None if it names none.

    Args:
        environ: The environment.
        program: Name of the program.
        devices: Returns the devices of this process.
        remembers: Whether this node has a journal. Without one, a value that failed here could run again.
    """
    setting = environ.get(SET, "")
    if not setting.startswith(FILE_MARK):
        return None
    if not remembers:
        warn(f"{SET}={setting} is not used without a memory; set KERNELCAST_TUNING_DIRECTORY to a folder")
        return None

    def models() -> set[str]:
        claims = tuple(devices())
        return {models_of(claims), *(claim.model_name for claim in claims)} - {""}

    return GivenConfigurations(setting[len(FILE_MARK) :], program, models, warn)


def warn(sentence: str) -> None:
    """Write to standard error, if the program has one."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"kernelcast: {sentence}\n")
