"""The kinds of faults that `kernelcast simulate` knows, and of backgrounds, which look like faults and are none.

`parse` reads them from the command line and the settings; `influence.py` computes their effects.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kernelcast.exporter.simulate.kinds.hardware import HARDWARE_FAULTS
from kernelcast.exporter.simulate.kinds.kind import ALL, FaultKind, FaultParameter
from kernelcast.wire.errors import ConfigurationError

THERMAL_DRIFT: Final = "thermal-drift"
KERNEL_SLOWDOWN: Final = "kernel-slowdown"
MEMORY_LEAK: Final = "memory-leak"
RISING_LOAD: Final = "rising-load"
CONTENTION: Final = "contention"
STRAGGLER: Final = "straggler"
BAD_TUNING: Final = "bad-tuning"
POWER_BRAKE: Final = "power-brake"
LOW_CLOCK: Final = "low-clock"
PCIE_LINK: Final = "pcie-link"
MEMORY_ERRORS: Final = "memory-errors"
TELEMETRY_LOST: Final = "telemetry-lost"
POWER_CAP: Final = "power-cap"
DIURNAL: Final = "diurnal"
HOT_BUT_STABLE: Final = "hot-but-stable"
DEPLOY: Final = "deploy"
RESTART: Final = "restart"
PREALLOCATED_MEMORY: Final = "preallocated-memory"
DIURNAL_HEAT: Final = "diurnal-heat"
WARM_UP: Final = "warm-up"
LOAD_STEP: Final = "load-step"
SAWTOOTH_MEMORY: Final = "sawtooth-memory"
SPIKES: Final = "spikes"
SLOW_OPENING: Final = "slow-opening"

_UNITS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER: Final = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[a-z]*)")
_TIMES: Final = frozenset({"start", "length", "over", "period", "pause", "ahead"})


FAULTS: Final[Mapping[str, FaultKind]] = {
    THERMAL_DRIFT: FaultKind(
        "cooling gets worse until the GPU throttles",
        parameters={"rate": FaultParameter(6.0, 0.001, 600.0, "degrees C per minute")},
    ),
    KERNEL_SLOWDOWN: FaultKind(
        "one kernel takes longer, and nothing explains it",
        per_kernel=True,
        parameters={
            "factor": FaultParameter(1.5, 1.0, 100.0, "times as long"),
            "over": FaultParameter(0.0, 0.0, 1e9, "time to get there; 0 is a step"),
        },
    ),
    MEMORY_LEAK: FaultKind(
        "memory grows until the program is out of it and restarts",
        parameters={"rate": FaultParameter(600.0, 0.001, 1e7, "MiB per minute")},
    ),
    RISING_LOAD: FaultKind(
        "more and more work until the GPU is saturated",
        gpu=ALL,
        parameters={"rate": FaultParameter(10.0, 0.001, 1e4, "per cent of the first load per minute")},
    ),
    CONTENTION: FaultKind(
        "a neighbour takes memory bandwidth: kernels that depend on it take longer",
        parameters={"factor": FaultParameter(2.0, 1.0, 100.0, "times as long")},
    ),
    STRAGGLER: FaultKind(
        "one rank computes longer and its peers wait in their collectives",
        parameters={"factor": FaultParameter(1.4, 1.0, 100.0, "times as long")},
    ),
    POWER_BRAKE: FaultKind(
        "the power supply asks the GPUs of a node to slow down",
        gpu=ALL,
        parameters={"ratio": FaultParameter(0.5, 0.2, 1.0, "of the usual clock")},
    ),
    LOW_CLOCK: FaultKind(
        "the clock stays low, and no reason is reported",
        parameters={"ratio": FaultParameter(0.7, 0.2, 1.0, "of the usual clock")},
    ),
    PCIE_LINK: FaultKind(
        "the PCIe link comes up with fewer lanes",
        parameters={"lanes": FaultParameter(4.0, 1.0, 16.0, "lanes of 16")},
    ),
    MEMORY_ERRORS: FaultKind(
        "single-bit and double-bit errors of the memory, and rows remapped for the latter",
        parameters={
            "rate": FaultParameter(120.0, 0.0, 1e6, "single-bit errors an hour"),
            "rows": FaultParameter(2.0, 0.0, 1e3, "double-bit errors an hour, each with a row remapped"),
        },
    ),
    TELEMETRY_LOST: FaultKind("the GPU hangs its monitor: its samples stop, its programs run on"),
    BAD_TUNING: FaultKind(
        "one kernel runs with block_size=48, a tunable that it registers; a block of whole warps would be quicker",
        gpu=ALL,
        per_kernel=True,
        parameters={"factor": FaultParameter(1.6, 1.0, 100.0, "times as long as well tuned")},
    ),
    **HARDWARE_FAULTS,
}
BACKGROUNDS: Final[Mapping[str, FaultKind]] = {
    DIURNAL: FaultKind(
        "load swings with the time of day",
        gpu=ALL,
        parameters={
            "amplitude": FaultParameter(0.3, 0.0, 0.9, "share of the load"),
            "period": FaultParameter(86400.0, 1.0, 1e9, "time from peak to peak"),
        },
    ),
    POWER_CAP: FaultKind(
        "the operator lowers the power limit: clocks fall a little, with the software's reason",
        gpu=ALL,
        parameters={"ratio": FaultParameter(0.9, 0.2, 1.0, "of the usual clock")},
    ),
    HOT_BUT_STABLE: FaultKind(
        "the GPU is hotter than its peers, and stays so",
        parameters={"rise": FaultParameter(12.0, 0.0, 60.0, "degrees C")},
    ),
    DEPLOY: FaultKind(
        "a new version: kernels, configurations and durations change at once",
        gpu=ALL,
        parameters={"factor": FaultParameter(1.25, 0.01, 100.0, "times as long as before")},
    ),
    RESTART: FaultKind(
        "the program ends and starts again",
        gpu=ALL,
        parameters={"pause": FaultParameter(5.0, 0.0, 86400.0, "time in between")},
    ),
    PREALLOCATED_MEMORY: FaultKind(
        "memory is nearly full from the beginning, and flat",
        gpu=ALL,
        parameters={"share": FaultParameter(0.95, 0.01, 0.99, "of the memory")},
    ),
    DIURNAL_HEAT: FaultKind(
        "the room is warmer by day",
        gpu=ALL,
        parameters={
            "amplitude": FaultParameter(4.0, 0.0, 20.0, "degrees C"),
            "period": FaultParameter(86400.0, 1.0, 1e9, "time from peak to peak"),
        },
    ),
    WARM_UP: FaultKind(
        "the chassis warms up and settles",
        parameters={
            "rise": FaultParameter(15.0, 0.0, 60.0, "degrees C in the end"),
            "over": FaultParameter(1800.0, 1.0, 1e6, "time constant"),
        },
    ),
    LOAD_STEP: FaultKind(
        "the load changes at once and stays",
        parameters={"factor": FaultParameter(1.3, 0.0, 10.0, "times the load before")},
    ),
    SAWTOOTH_MEMORY: FaultKind(
        "a cache fills and is emptied, again and again",
        parameters={
            "height": FaultParameter(16_000.0, 0.0, 1e6, "MiB when full"),
            "period": FaultParameter(10_800.0, 1.0, 1e9, "time from empty to empty"),
        },
    ),
    SPIKES: FaultKind(
        "one kernel takes longer for a moment, now and then",
        per_kernel=True,
        parameters={
            "factor": FaultParameter(3.0, 1.0, 100.0, "times as long"),
            "period": FaultParameter(200.0, 1.0, 1e9, "time from spike to spike"),
            "over": FaultParameter(10.0, 0.1, 1e6, "length of a spike"),
        },
    ),
    SLOW_OPENING: FaultKind(
        "kernels run slower in the first minutes: compilation, autotuning; below 1 they run faster, with cold clocks",
        parameters={
            "factor": FaultParameter(1.4, 0.01, 100.0, "times as long"),
            "over": FaultParameter(180.0, 0.1, 1e6, "how long"),
        },
    ),
}
KINDS: Final[Mapping[str, FaultKind]] = {**FAULTS, **BACKGROUNDS}
# Kinds that begin at 0 unless `start` is given; the others begin after `_DEFAULT_START_SECONDS`.
_FROM_THE_START: Final = frozenset(
    {DIURNAL, HOT_BUT_STABLE, PREALLOCATED_MEMORY, BAD_TUNING, DIURNAL_HEAT, SAWTOOTH_MEMORY, SPIKES, SLOW_OPENING}
)
_DEFAULT_START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class SimulatedFault:
    """One fault or background of a simulation, as requested.

    Attributes:
        kind: A key of `KINDS`.
        node: Number of the node; `ALL` for every one.
        gpu: Number of the GPU on that node; `ALL` for every one.
        kernel: Number of the program's kernel; 0 is the one with the most GPU time.
        start_seconds: Its beginning, in simulated time.
        length_seconds: Its length; infinite by default.
        values: The kind's own numbers; times in seconds.
    """

    kind: str
    node: int = 0
    gpu: int = 0
    kernel: int = 0
    start_seconds: float = _DEFAULT_START_SECONDS
    length_seconds: float = math.inf
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_fault(self) -> bool:
        """False for what only looks like one."""
        return self.kind in FAULTS

    def active(self, seconds: float) -> bool:
        """Whether it acts at a moment of simulated time."""
        return self.start_seconds <= seconds < self.start_seconds + self.length_seconds

    def __getitem__(self, name: str) -> float:
        return self.values[name]


def parse(text: str, kinds: Mapping[str, FaultKind], *, option: str) -> SimulatedFault:
    """Read `KIND[:key=value,…]`, such as `thermal-drift:node=0,gpu=1,start=60s,rate=6`.

    Args:
        text: As on the command line.
        kinds: `FAULTS` or `BACKGROUNDS`.
        option: Its name, for messages.

    Raises:
        ConfigurationError: The kind, a key or a value is not one, a key comes twice, or a number is beyond its limits.
    """
    name, _, rest = text.partition(":")
    kind = kinds.get(name)
    if kind is None:
        raise ConfigurationError(f"{option} {text}: {name!r} is not a kind; kinds are {', '.join(kinds)}")
    places = {"node": float(ALL if name in {DIURNAL, DIURNAL_HEAT} else 0), "gpu": float(kind.gpu)}
    if kind.per_kernel:
        places["kernel"] = 0.0
    times = {"start": 0.0 if name in _FROM_THE_START else _DEFAULT_START_SECONDS, "length": math.inf}
    given = {**places, **times, **{key: parameter.default for key, parameter in kind.parameters.items()}}
    seen: set[str] = set()
    for item in rest.split(",") if rest else ():
        key, equals, value = item.partition("=")
        if not equals or key not in given:
            raise ConfigurationError(f"{option} {text}: {item!r} is not one of {', '.join(f'{k}=…' for k in given)}")
        if key in seen:
            raise ConfigurationError(f"{option} {text}: {key} is given twice; give the option twice, or {key} once")
        seen.add(key)
        given[key] = _number(key, value, whole=key in places, context=f"{option} {text}")
    for key, parameter in kind.parameters.items():
        if not parameter.minimum <= given[key] <= parameter.maximum:
            raise ConfigurationError(
                f"{option} {text}: {key} is {given[key]:g}; it must be {parameter.minimum:g} to {parameter.maximum:g}"
            )
    return SimulatedFault(
        kind=name,
        node=int(given["node"]),
        gpu=int(given["gpu"]),
        kernel=int(given.get("kernel", 0)),
        start_seconds=given["start"],
        length_seconds=given["length"],
        values={key: given[key] for key in kind.parameters},
    )


def syntax(kinds: Mapping[str, FaultKind]) -> str:
    """The syntax of faults, a line for each kind, for `--help`."""
    lines = []
    for name, kind in kinds.items():
        keys = [f"{key}={parameter.default:g} ({parameter.help})" for key, parameter in kind.parameters.items()]
        kernel = ["kernel=0"] if kind.per_kernel else []
        lines.append(f"{name}: {kind.help}. {', '.join([*kernel, *keys])}".rstrip())
    return "\n\n".join(lines)


def _number(key: str, value: str, *, whole: bool, context: str) -> float:
    if whole and value == "all":
        return float(ALL)
    match = _NUMBER.fullmatch(value)
    unit = _UNITS.get(match["unit"]) if match and (key in _TIMES or not match["unit"]) else None
    if match is None or unit is None:
        example = "90s, 5m or 2h" if key in _TIMES else "all or a whole number" if whole else "a number"
        raise ConfigurationError(f"{context}: {key} is {value!r}; write {example}")
    number = float(match["number"]) * unit
    if whole and not number.is_integer():
        raise ConfigurationError(f"{context}: {key} is {value!r}; write all or a whole number")
    return number
