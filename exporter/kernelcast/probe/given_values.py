"""Values that whoever starts the program gives its tunables and spaces: the variable `KERNELCAST_SET`.

`{"NAME": "VALUE"}` is the first value of a tunable. `@FILE` names kept configurations, as `kernelcast hints export`
writes them: those of this program, device model and code version count as kept in an earlier run. What cannot be used
is said on standard error, and the program's own value stays.
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
ELSEWHERE: Final = "unknown"
"""Driver of a kept configuration of another node, so that it is checked here soon."""


def set_outside(name: str, allowed: Sequence[Value], value: Value) -> Value:
    """Return the first value that the environment gives a tunable, if it is allowed; else the program's own."""
    given = os.environ.get(SET, "")
    if not given or given.startswith(FILE_MARK):
        return value
    try:
        wanted = json.loads(given).get(name)
    except (ValueError, AttributeError, RecursionError):
        wanted = None
        say(f"{SET} is {given[:80]!r}; it must be a JSON object of names and values, or @FILE")
    if wanted is None:
        return value
    found = [one for one in allowed if text(one) == str(wanted)]
    if not found:
        known = ", ".join(map(text, allowed))
        say(f"{SET} sets {name} to {wanted!r}; it allows {known}; {text(value)} stays")
    return found[0] if found else value


class GivenConfigurations:
    """Kept configurations of a file, for this program on this machine. For any thread.

    Args:
        path: The file: JSON objects with `program`, `device_model`, `code_version`, `tunable` and `value`, one a line;
            the first one that fits counts. A field that is missing or empty fits everything.
        program: The program.
        models: Returns the models of its devices.
        say: Takes each sentence about what is not used, once.
    """

    def __init__(
        self,
        path: str,
        program: str,
        models: Callable[[], Iterable[str]],
        say: Callable[[str], None],
    ) -> None:
        self._path = path
        self._program = program
        self._models = models
        self._say = say
        self._said: set[str] = set()
        self._rows: dict[str, list[Mapping[str, Any]]] = {}
        try:
            rows = [row for row in read(Path(path)) if isinstance(row.get("value"), str)]
        except OSError as error:
            self._tell(f"cannot be read: {error}")
            return
        for row in rows:
            self._rows.setdefault(str(row.get("tunable")), []).append(row)
        if not rows:
            self._tell("has no kept configuration; write it by `kernelcast hints export`")

    def find(self, space: str, code_version: str) -> KeptConfiguration | None:
        """Return the configuration of a space or tunable for this program, device and code; None, said, without one."""
        rows = self._rows.get(space, ())
        models = tuple(self._models()) if rows else ()
        mine = {"program": (self._program,), "device_model": models, "code_version": (code_version,)}
        others = []
        for row in rows:
            different = next((name for name, own in mine.items() if row.get(name) and row[name] not in own), "")
            if not different:
                return KeptConfiguration(row["value"], 0.0, ELSEWHERE, str(row.get("approved_by") or ""))
            others.append((different, row[different]))
        if others:
            name, other = others[0]
            shown = " or ".join(map(repr, mine[name])) or "not known"
            self._tell(f"has {space} for {name} {other!r}, and this is {shown}; it is not applied")
        return None

    def refused(self, space: str, config: str, reason: str) -> None:
        """Say why a configuration of the file is not in force."""
        self._tell(f"has {config} for {space}, which is not applied: {reason}")

    def _tell(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._say(f"{SET}={FILE_MARK}{self._path} {sentence}")


def given_configurations(
    environ: Mapping[str, str], program: str, devices: Callable[[], Iterable[DeviceClaim]], *, remembers: bool
) -> GivenConfigurations | None:
    """Return the kept configurations that the environment gives; None without a file.

    Args:
        environ: The environment.
        program: Name of the program.
        devices: Returns the devices of this process.
        remembers: Whether this node has a memory: without one it could run again what failed here.
    """
    given = environ.get(SET, "")
    if not given.startswith(FILE_MARK):
        return None
    if not remembers:
        say(f"{SET}={given} is not used without a memory; set KERNELCAST_TUNING_DIRECTORY to a folder")
        return None

    def models() -> set[str]:
        found = tuple(devices())
        return {models_of(found), *(claim.model_name for claim in found)} - {""}

    return GivenConfigurations(given[len(FILE_MARK) :], program, models, say)


def say(sentence: str) -> None:
    """Write to standard error, if the program has one."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(f"kernelcast: {sentence}\n")
