"""The journal of a program on a node: configurations that were tried, kept or banned.

The probe has one: the program's threads write it, and the sender's thread reads it when a hint comes. A line is written
before a candidate first runs. If the process then ends without another line about it, the candidate is held
responsible: the next process finds the line, and never tries that configuration again. All ranks of a node append to
one file.
"""

import hashlib
import os
import re
import socket
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import lines

VERSION: Final = 1
"""Of the lines; lines of another version are ignored."""
COMPACT_BYTES: Final = 256 * 1024
"""Size from which on a start replaces the file by the present state."""
MOST_ENTRIES: Final = 4096
"""Configurations in memory; of more, the one that was written longest ago is forgotten."""
MAX_DEVICE: Final = 256
"""Characters of a device's name in a line."""
LATEST_SECONDS: Final = 1e12
"""Unix time, before or after 1970, beyond which a line's time is unusable."""
MOST_SEARCHES: Final = 64
"""Open searches whose measurements are remembered; of more, those of the one that began longest ago are forgotten."""
MOST_MEASUREMENTS: Final = 4096
"""Measurements of one search that are remembered."""
MOST_PROCESSES: Final = 64
"""Processes that are remembered for one configuration: more than a node has ranks."""
STAT_START_TIME: Final = 19
"""Index of a process's start time among the fields of /proc/PID/stat that follow its name."""

Key = tuple[str, str, str]
"""Space, code version and device."""


@dataclass(frozen=True, slots=True)
class JournalProcess:
    """A process, so that a later one can find out whether it still runs."""

    host: str
    pid: int
    start: str


@dataclass(frozen=True, slots=True)
class JournalMachine:
    """The part of a machine that a kept configuration depends on.

    Attributes:
        device: Returns the model of the process's device, empty where it is not known; called at the first use.
        driver: Version of its driver; empty where it is not known.
    """

    device: Callable[[], str] = str
    driver: str = ""


@dataclass(slots=True)
class JournalEntry:
    """State of one configuration of a space: the fields of its last line.

    `state` is `begin`, `survived`, `interrupted`, `taken_back`, or the value of a `Decision`.
    """

    state: str
    reason: str = ""
    ratio: float | None = None
    time: float = 0.0
    by: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptConfiguration:
    """A configuration that was kept.

    Attributes:
        config: The configuration.
        time: Unix seconds of the last verdict about it.
        driver: Version of the driver then; empty where it was not known.
        approved_by: The person who had approved it; empty without one. A later verdict changes nothing here.
    """

    config: str
    time: float
    driver: str
    approved_by: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a search has measured at one request.

    Attributes:
        config: The configuration that it asked for.
        times: Seconds per item of its launches.
        launch_seconds: Usual time of a launch of the kept configuration.
    """

    config: str
    times: tuple[float, ...]
    launch_seconds: float


def no_reason(_kept: KeptConfiguration) -> str:
    """Let every configuration be in force."""
    return ""


class GivenKept(Protocol):
    """Configurations that another node has kept and that a program gets at its start, as in `KERNELCAST_SET`."""

    def find(self, space: str, code_version: str) -> KeptConfiguration | None:
        """Return the configuration of a space for this program and machine; None if there is none."""

    def refused(self, space: str, config: str, reason: str) -> None:
        """Note the reason for which a configuration is not in force."""


NOT_KEPT: Final = (Decision.ROLLED_BACK.value, Decision.FAILED.value, "taken_back")
"""States of a configuration that this node has tried and does not keep."""


class Journal:
    """Reads and writes the journal of one program. No method raises; what cannot be written is lost with the process.

    A configuration is *banned* if it failed, or if its process ended while it ran for the first time. Each device model
    has its own configurations. Lines without a device, written where none was known, count for all. Any thread may use
    it: questions read copies. It has no lock, which a forked child could find locked for ever. A child writes nothing:
    it would do so as its parent, which vouches for candidates by being alive.

    Args:
        directory: Folder of the journals of this node.
        program: Name of the program.
        process: This process.
        clock: Unix seconds.
        running: Whether a process still runs.
        machine: The machine; None knows neither its device nor its driver.
        given: Configurations of another node; for a space without a kept configuration in this journal.

    Attributes:
        driver: Version of the driver; empty where it is not known.
        failures: Reads and writes that failed.
    """

    def __init__(  # noqa: PLR0913  the parts of the process
        self,
        directory: Path,
        program: str,
        process: JournalProcess | None = None,
        clock: Callable[[], float] = time.time,
        running: Callable[[JournalProcess], bool] | None = None,
        machine: JournalMachine | None = None,
        *,
        given: GivenKept | None = None,
    ) -> None:
        self._given = given
        readable = re.sub(r"[^A-Za-z0-9._-]", "_", program)[:64]
        self.path = directory / f"{readable}-{hashlib.sha256(program.encode()).hexdigest()[:8]}.jsonl"
        self._process = process or this_process()
        self._writer = os.getpid()
        self._clock = clock
        self._running = running or is_running
        self._entries: OrderedDict[tuple[Key, str], JournalEntry] = OrderedDict()
        self._kept: dict[Key, KeptConfiguration] = {}
        self._open_starts: dict[tuple[Key, str], dict[str, dict[str, Any]]] = {}
        """Processes that have begun with a configuration and noted nothing since: ranks of a node share the file."""
        self._measurements: OrderedDict[tuple[Key, int], list[Measurement]] = OrderedDict()
        """What open searches have measured. The ranks of a node share the file; their searches differ by their seed."""
        self._machine = machine or JournalMachine()
        self._found_device: str | None = None
        self.driver = self._machine.driver
        self.failures = 0
        self._load()

    def begin(self, space: str, config: str, code_version: str = "") -> None:
        """Note that a candidate is about to run for the first time."""
        self._write("begin", space, config, code_version)

    def survived(self, space: str, config: str, code_version: str = "") -> None:
        """Note that a candidate has run without harm: a later end of the process is not its fault."""
        self._write("survived", space, config, code_version)

    def end(  # noqa: PLR0913  the facts of a decision, each with a default
        self,
        space: str,
        config: str,
        decision: Decision | None,
        code_version: str = "",
        *,
        reason: str = "",
        ratio: float | None = None,
        approved_by: str = "",
    ) -> None:
        """Note the decision about a candidate; None if its trial was interrupted. One that failed is banned."""
        state = decision.value if decision else "interrupted"
        facts = {"reason": reason[:200], "ratio": ratio, "approved_by": approved_by}
        self._write(state, space, config, code_version, **facts)

    def measured(self, space: str, code_version: str, seed: int, measurement: Measurement) -> None:
        """Note what a search has measured, so that the next process goes on from there."""
        facts = {"search": seed, "times": measurement.times, "launch_seconds": measurement.launch_seconds}
        self._write("measured", space, measurement.config, code_version, **facts)

    def searched(self, space: str, code_version: str, seed: int) -> None:
        """Note that a search has ended: the next one begins anew."""
        self._write("searched", space, "", code_version, search=seed)

    def measurements(self, space: str, code_version: str, seed: int) -> tuple[Measurement, ...]:
        """Return what the search with this seed has measured in earlier processes on this device, in order."""
        return tuple(self._measurements.get(((space, code_version, self._device), seed), ()))

    def kept(
        self, space: str, code_version: str = "", unfit: Callable[[KeptConfiguration], str] = no_reason
    ) -> str | None:
        """Return the configuration that was kept last for this code version; None if there is none."""
        last = self.last_kept(space, code_version, unfit)
        return last.config if last else None

    def last_kept(
        self, space: str, code_version: str = "", unfit: Callable[[KeptConfiguration], str] = no_reason
    ) -> KeptConfiguration | None:
        """Return the configuration that was kept last for this code version and device; None if there is none.

        Args:
            space: Name of the space.
            code_version: Version of the program.
            unfit: Returns the reason for which a configuration cannot be in force; empty if it can.
        """
        kept = [self._kept[key] for key in self._keys(space, code_version) if key in self._kept]
        if kept:
            last = max(kept, key=lambda configuration: configuration.time)
            return None if unfit(last) else last
        return self._given_configuration(self._given, space, code_version, unfit) if self._given else None

    def _given_configuration(
        self, source: GivenKept, space: str, code_version: str, unfit: Callable[[KeptConfiguration], str]
    ) -> KeptConfiguration | None:
        """Return the configuration of another node, unless this node has tried it and does not keep it."""
        given = source.find(space, code_version)
        if given is None:
            return None
        reason = (
            self.banned(space, given.config, code_version)
            or self._reason_not_kept(space, given.config, code_version)
            or unfit(given)
        )
        if reason:
            source.refused(space, given.config, reason)
            return None
        return given

    def _reason_not_kept(self, space: str, config: str, code_version: str) -> str:
        for key in self._keys(space, code_version):
            entry = self._entries.get((key, config))
            if entry is not None and entry.state in NOT_KEPT:
                return f"here it was {entry.state.replace('_', ' ')}"
        return ""

    def forget(self, space: str, code_version: str = "") -> None:
        """Note that the kept configuration was taken back."""
        self._write("taken_back", space, self.kept(space, code_version) or "", code_version)

    def banned(self, space: str, config: str, code_version: str = "") -> str:
        """Return the reason for which a configuration is never tried again; empty if it may be."""
        keys = self._keys(space, code_version)
        if not self._device:  # it may be any of those that have run the configuration
            places = tuple(self._entries)
            keys = tuple(key for key, tried in places if tried == config and key[:2] == (space, code_version))
        return next(filter(None, (self._ban_reason((key, config)) for key in keys)), "")

    def tried(self, space: str, code_version: str, since: float) -> set[str]:
        """Return the configurations that have begun to run, or were decided, at or after a time, Unix seconds."""
        keys = self._keys(space, code_version)
        entries = tuple(self._entries.items())
        return {config for (key, config), entry in entries if key in keys and entry.time >= since}

    @property
    def _device(self) -> str:
        if self._found_device is None:
            self._found_device = self._machine.device()[:MAX_DEVICE]
        return self._found_device

    def _keys(self, space: str, code_version: str) -> tuple[Key, ...]:
        """Return the key of this device, and that of lines without a device."""
        return tuple(dict.fromkeys(((space, code_version, self._device), (space, code_version, ""))))

    def _ban_reason(self, place: tuple[Key, str]) -> str:
        entry = self._entries.get(place)
        if entry is None:
            return ""
        if entry.state == Decision.FAILED.value:
            return f"it failed before: {entry.reason}"
        if any(map(self._has_ended, tuple(self._open_starts.get(place, {}).values()))):
            return "the process ended when it was tried before"
        return ""

    def _has_ended(self, by: dict[str, Any]) -> bool:
        try:
            process = JournalProcess(str(by["host"]), int(by["pid"]), str(by["start"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            return True
        return process != self._process and not self._running(process)

    def _write(self, state: str, space: str, config: str, code_version: str, **facts: Any) -> None:
        if os.getpid() != self._writer:
            return
        line = {
            "version": VERSION,
            "state": state,
            "space": space,
            "config": config,
            "code_version": code_version,
            "time": round(self._clock(), 3),
            "by": asdict(self._process),
            **{name: value for name, value in (("device", self._device), ("driver", self.driver)) if value},
            **{name: value for name, value in facts.items() if value not in (None, "")},
        }
        self._apply(line)
        try:
            lines.append(self.path, line)
        except (OSError, ValueError):
            self.failures += 1

    def _load(self) -> None:
        try:
            if self.path.stat().st_size > COMPACT_BYTES:
                self._compact()
            if not self._entries:
                for line in lines.read(self.path):
                    self._apply(line)
        except FileNotFoundError:
            pass
        except (OSError, ValueError):
            self.failures += 1

    def _compact(self) -> None:
        """Read the file and replace it by the state; where another process has it locked, do neither."""
        try:
            lines.replace(self.path, self._read_state)
        except (OSError, ValueError):
            self.failures += 1

    def _read_state(self) -> list[dict[str, Any]]:
        """Read the file, and return the state as lines."""
        before = self._entries, self._kept, self._open_starts, self._measurements
        self._entries, self._kept, self._open_starts, self._measurements = OrderedDict(), {}, {}, OrderedDict()
        try:
            for line in lines.read(self.path):
                self._apply(line)
        except OSError:
            self._entries, self._kept, self._open_starts, self._measurements = before
            raise
        return self._lines()

    def _apply(self, line: dict[str, Any]) -> None:
        if line.get("version") != VERSION:
            return
        key = (str(line.get("space", "")), str(line.get("code_version", "")), str(line.get("device", "")))
        config, state = str(line.get("config", "")), str(line.get("state", ""))
        if state in ("measured", "searched"):
            self._apply_measurement(key, config, line)
            return
        by = line.get("by")
        entry = JournalEntry(
            state,
            str(line.get("reason", "")),
            line.get("ratio"),
            _seconds(line.get("time")),
            by if isinstance(by, dict) else {},
        )
        if state == Decision.KEPT.value:
            before = self._kept.get(key)
            approved_by = before.approved_by if before and before.config == config else ""
            approved_by = str(line.get("approved_by", "")) or approved_by
            self._kept[key] = KeptConfiguration(config, entry.time, str(line.get("driver", "")), approved_by)
        elif state in ("taken_back", Decision.FAILED.value):
            for kept_key in (key, (*key[:2], "")):
                kept = self._kept.get(kept_key)
                if kept is not None and (state == "taken_back" or kept.config == config):
                    del self._kept[kept_key]
        known = self._entries.pop((key, config), None)
        if known is not None and known.state == Decision.FAILED.value and state not in ("begin", Decision.KEPT.value):
            entry = known
        self._entries[key, config] = entry
        self._record_process((key, config), state, entry.by)
        while len(self._entries) > MOST_ENTRIES:
            oldest, _ = self._entries.popitem(last=False)
            self._open_starts.pop(oldest, None)

    def _apply_measurement(self, key: Key, config: str, line: dict[str, Any]) -> None:
        """Add what a search has measured, or forget it, because the search has ended."""
        seed, times = line.get("search"), line.get("times")
        if not isinstance(seed, int):
            return
        if line["state"] == "searched":
            self._measurements.pop((key, seed), None)
            return
        measured = self._measurements.setdefault((key, seed), [])
        seconds = tuple(map(_seconds, times)) if isinstance(times, list | tuple) else ()
        usual = _seconds(line.get("launch_seconds"))
        if seconds and min(*seconds, usual) > 0 and len(measured) < MOST_MEASUREMENTS:
            measured.append(Measurement(config, seconds, usual))
        while len(self._measurements) > MOST_SEARCHES:
            self._measurements.popitem(last=False)

    def _record_process(self, place: tuple[Key, str], state: str, by: dict[str, Any]) -> None:
        """Note that a process has begun with a configuration, or is done with it; a decision counts for all of them."""
        process = f"{by.get('host')} {by.get('pid')} {by.get('start')}"
        if state == "begin":
            starts = self._open_starts.setdefault(place, {})
            starts[process] = by
            while len(starts) > MOST_PROCESSES:
                starts.pop(next(iter(starts)), None)  # another thread may have removed it
        elif state in (Decision.KEPT.value, Decision.FAILED.value, "taken_back"):
            self._open_starts.pop(place, None)
        elif (starts := self._open_starts.get(place, {})).pop(process, None) is not None and not starts:
            del self._open_starts[place]

    def _lines(self) -> list[dict[str, Any]]:
        """Return the present state as lines; kept configurations come last, so that no later line changes them."""
        kept = {(key, configuration.config): configuration for key, configuration in self._kept.items()}
        places = [place for place in self._entries if place not in kept]
        places += [place for place in kept if place in self._entries]
        states = [self._state_line(place, kept.get(place)) for place in places]
        starts = [
            {**line, "state": "begin", "by": by}
            for place, line in zip(places, states, strict=True)
            for by in self._open_starts.get(place, {}).values()
        ]
        measured = [
            {
                "version": VERSION,
                "state": "measured",
                **dict(zip(("space", "code_version", "device"), key, strict=True)),
                **asdict(measurement),
                "search": seed,
            }
            for (key, seed), measurements in self._measurements.items()
            for measurement in measurements
        ]
        return states + starts + measured

    def _state_line(self, place: tuple[Key, str], kept: KeptConfiguration | None) -> dict[str, Any]:
        """Return the state of a configuration, kept or not, as a line."""
        (space, code_version, device), config = place
        entry = self._entries[place]
        return {
            "version": VERSION,
            "state": Decision.KEPT.value if kept else entry.state,
            "space": space,
            "config": config,
            "code_version": code_version,
            "device": device,
            "driver": kept.driver if kept else "",
            "approved_by": kept.approved_by if kept else "",
            "time": kept.time if kept else entry.time,
            "by": entry.by,
            "reason": entry.reason,
            "ratio": entry.ratio,
        }


def _seconds(time_value: Any) -> float:
    """Return the time of a line, Unix seconds; 0 where it is none, because JSON can hold anything."""
    usable = isinstance(time_value, int | float) and abs(time_value) <= LATEST_SECONDS
    return float(time_value) if usable else 0.0


def this_process() -> JournalProcess:
    """Describe this process."""
    return JournalProcess(socket.gethostname(), os.getpid(), _start_of(os.getpid()))


def is_running(process: JournalProcess) -> bool:
    """Whether a process still runs, as far as this node can know; a process of another node counts as running."""
    return process.host != socket.gethostname() or (bool(process.start) and _start_of(process.pid) == process.start)


def _start_of(pid: int) -> str:
    """Return the kernel's start time of a process; empty where there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()  # the name in it may be cut within a character
    except OSError:
        return ""
    fields = stat.rpartition(b")")[2].split()
    return fields[STAT_START_TIME].decode() if len(fields) > STAT_START_TIME else ""
