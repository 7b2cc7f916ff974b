"""Finds the rack of a host, by a file or by a pattern of host names; `alarms.grouping` groups GPUs by it."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.wire.errors import ConfigurationError

RackOf = Callable[[str], str]
"""From a host's name to its rack's; empty where it is not known."""


def rack_of(settings: AlarmSettings) -> RackOf:
    """Return the function that finds a host's rack.

    Raises:
        ConfigurationError: The file cannot be read, or a line of it is not `HOST RACK`.
    """
    listed = _read(settings.rack_file) if settings.rack_file is not None else {}
    pattern = re.compile(settings.rack_pattern) if settings.rack_pattern else None

    def find(host: str) -> str:
        if host in listed or pattern is None:
            return listed.get(host, "")
        match = pattern.search(host)
        return (match[1] or "") if match else ""

    return find


def _read(path: Path) -> Mapping[str, str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ConfigurationError(f"rack_file {path} cannot be read: {reason}; correct the path") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        if len(fields) != 2:
            raise ConfigurationError(
                f"rack_file {path}, line {number} has {len(fields)} words; write a host and its rack, as `node7 r12`"
            )
        found[fields[0]] = fields[1]
    return found
