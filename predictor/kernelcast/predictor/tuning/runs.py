"""Versions and tunables of each program on each GPU, as running programs report them.

`TunableReports` records the reports under the engine's lock; a cycle takes the deploys since the last one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final

from kernelcast.predictor.series.subjects import DeviceKey
from kernelcast.wire.identity import Versions

MAX_RUNS: Final = 50_000
"""Programs on GPUs that are followed; further ones are counted as refused, so that memory stays bounded."""
MAX_RUN_TUNABLES: Final = 1_000
"""Tunables of one program on one GPU; further ones are refused."""
MAX_VALUES: Final = 100
"""Values of one tunable, or versions, that count as in use at a time; the one reported longest ago is forgotten."""
VERSION_SILENT_NS: Final = 300 * 1_000_000_000
"""A value that returns after this silence is a change; within it, old and new run side by side (a rollout)."""
CODE: Final = "code"
_NAMES: Final = tuple(one.name for one in fields(Versions))

RunKey = tuple[str, DeviceKey]
"""Program, and its GPU."""


@dataclass(slots=True)
class ProgramRun:
    """One program on one GPU, as it was last reported. Its times change; all else is replaced, as others read it.

    Attributes:
        versions: Versions that it runs on.
        device_model: Model of the GPU; empty where it is not known.
        values: Value of each tunable with the kernels that it concerns, by name; no kernels for all of the program.
        reported_ns: When a report came last, by this process's clock.
        time_ns: Time of its newest report.
    """

    versions: Versions = field(default_factory=Versions)
    device_model: str = ""
    values: dict[str, tuple[str, str]] = field(default_factory=dict)
    reported_ns: int = 0
    time_ns: int = 0

    @property
    def code_version(self) -> str:
        """Its own version; empty where it reports none."""
        return self.versions.code


class ProgramRuns:
    """All programs by GPU; bounded.

    Attributes:
        refused: Reports of further programs on further GPUs, and of further tunables.
    """

    def __init__(self) -> None:
        self._runs: dict[RunKey, ProgramRun] = {}
        self._reported_ns: dict[RunKey, dict[str, dict[str, int]]] = {}
        self._redeployed: dict[RunKey, Versions] = {}
        self.refused = 0

    def observe(self, labels: Mapping[str, str], *, time_ns: int, now_ns: int) -> None:
        """Record the labels of a point of `kernelcast.tunable.info`."""
        before = self._before(labels, time_ns, now_ns)
        if before is None:
            return
        version, own = labels.get("code_version", ""), (labels.get("value", ""), labels.get("kernel", ""))
        self._record_versions(labels, {CODE: version}, now_ns)
        name, model = labels.get("tunable", ""), labels.get("device_model", "") or before.device_model
        if (before.code_version, before.values.get(name)) == (version, own):
            return
        # Another version may have other tunables.
        kept = before.values if before.code_version == version else {}
        versions = replace(before.versions, code=version)
        if name not in kept and len(kept) >= MAX_RUN_TUNABLES:
            self.refused += 1
            return
        self._runs[_key(labels)] = ProgramRun(versions, model, {**kept, name: own}, now_ns, time_ns)

    def observe_versions(self, labels: Mapping[str, str], *, time_ns: int, now_ns: int) -> None:
        """Record the labels of a point of `kernelcast.program.info`."""
        before = self._before(labels, time_ns, now_ns)
        if before is None:
            return
        reported = Versions.of_labels(labels)
        known = {name: value for name in _NAMES if (value := getattr(reported, name)) or name == CODE}
        self._record_versions(labels, known, now_ns)
        versions = replace(before.versions, **known)
        if versions != before.versions:
            kept = before.values if versions.code == before.code_version else {}
            self._runs[_key(labels)] = ProgramRun(versions, before.device_model, kept, now_ns, time_ns)

    def all(self) -> Mapping[RunKey, ProgramRun]:
        """Every program on every GPU."""
        return dict(self._runs)

    def take_redeployed(self) -> dict[RunKey, Versions]:
        """Programs that have come to run on other versions since the last call, each with those before."""
        redeployed, self._redeployed = self._redeployed, {}
        return redeployed

    def drop_silent(self, before_ns: int) -> None:
        """Forget programs without a report since then."""
        self._runs = {key: run for key, run in self._runs.items() if run.reported_ns >= before_ns}
        self._reported_ns = {key: self._reported_ns[key] for key in self._runs if key in self._reported_ns}

    def _before(self, labels: Mapping[str, str], time_ns: int, now_ns: int) -> ProgramRun | None:
        """The program on its GPU as it was last reported; None for an older report, or beyond the limit."""
        run = self._runs.get(_key(labels))
        if run is None and len(self._runs) >= MAX_RUNS:
            self.refused += 1
            return None
        if run is None:
            run = self._runs.setdefault(_key(labels), ProgramRun())
        if run.time_ns > time_ns:
            return None
        run.reported_ns, run.time_ns = now_ns, time_ns
        return run

    def _record_versions(self, labels: Mapping[str, str], reported: Mapping[str, str], now_ns: int) -> None:
        """Remember the former versions where a reported one replaces another."""
        key = _key(labels)
        reported_ns = self._reported_ns.setdefault(key, {})
        formers = {name: record(reported_ns.setdefault(name, {}), value, now_ns) for name, value in reported.items()}
        replaced = {name: former for name, former in formers.items() if former is not None}
        # Of several changes between two cycles, the first one shows the versions before.
        if replaced and key not in self._redeployed:
            self._redeployed[key] = replace(self._runs[key].versions, **replaced)


def changes(before: Versions, now: Versions) -> str:
    """The versions that differ, such as `image a:1 -> a:2, driver 550.54.15 -> 560.28.03`; without unknown ones."""
    pairs = ((name, getattr(before, name), getattr(now, name)) for name in _NAMES)
    return ", ".join(f"{name} {old} -> {new}" for name, old, new in pairs if old and new and old != new)


def record(reported_ns: dict[str, int], value: str, now_ns: int) -> str | None:
    """Record that a value was reported; returns the newest of those that it replaces, None where it is one in use.

    Args:
        reported_ns: When each value was last reported; values that are no longer in use are removed.
        value: The value.
        now_ns: Time of the report.
    """
    known = dict(reported_ns)
    for old in [old for old, time_ns in reported_ns.items() if time_ns < now_ns - VERSION_SILENT_NS]:
        del reported_ns[old]
    replaces = bool(known) and value not in reported_ns and set(known) != {value}
    reported_ns[value] = now_ns
    if len(reported_ns) > MAX_VALUES:
        del reported_ns[min(reported_ns, key=lambda old: reported_ns[old])]
    others = [old for old in known if old != value]
    return max(others, key=lambda old: known[old]) if replaces else None


def _key(labels: Mapping[str, str]) -> RunKey:
    return labels.get("program", ""), (labels.get("Hostname", ""), labels.get("UUID", ""), labels.get("GPU_I_ID", ""))
