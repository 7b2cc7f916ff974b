"""The oracle's session: it answers the requests of one connection from a recording, and logs them.

`server` calls `Session.answer` on the connection's thread. A connection replays one seed. Times are single launches
drawn from the recorded ones; the first launch of a configuration is cold. The budget counts different configurations,
failing ones and the start included.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, inf, sin
from random import Random
from typing import Any, Final

from kernelcast.tuning.formats.kernel_tuner import KernelTunerRecording, Recorded, is_time
from kernelcast.tuning.space import Value

MAX_LAUNCHES: Final = 64
"""Of one request."""
START_SHARES: Final = (0.45, 0.55)
"""Quantiles of the times between which the start is drawn: an average configuration, as an untuned program has."""
DECISIONS: Final = frozenset({"kept", "rolled_back", "inconclusive", "failed"})
MAX_VERDICTS: Final = 1000
MAX_REQUESTS: Final = 1_000_000
"""Of one connection; further ones are refused, and requests are not logged any more."""

Log = Callable[[Mapping[str, Any]], None]
Configuration = tuple[Value, ...]


class Refused(Exception):  # noqa: N818  it is an answer, not a fault
    """A request that the oracle answers with its reason for refusing."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Changes to recorded times, so that the tuner cannot know them.

    Attributes:
        drift: Change of all times per launch; 0.001 adds 0.1 % with each.
        field: Strength of a smooth field over the configurations that multiplies their times; 0 for none.
        field_seed: Determines the field.
    """

    drift: float = 0.0
    field: float = 0.0
    field_seed: int = 0


@dataclass
class Session:
    """One connection: one seed with a budget of its own. For one thread."""

    recording: KernelTunerRecording
    budget: int
    log: Log
    disturbance: Disturbance = field(default_factory=Disturbance)
    seed: int | None = None
    ended: bool = False

    def __post_init__(self) -> None:
        """Start with nothing measured."""
        self._measured: dict[Configuration, int] = {}
        self._launches = 0
        self._requests = 0
        self._verdicts = 0
        self._random = Random(0)
        self._waves: list[list[float]] = []

    def answer(self, request: Any) -> dict[str, Any]:
        """Answer one request; the log receives both, up to the limit of requests.

        Raises:
            OSError: The log cannot be written.
        """
        try:
            answer = self._dispatch(request)
        except Refused as refused:
            answer = {"refused": str(refused)}
        if self._requests <= MAX_REQUESTS:
            self.log({"seed": self.seed, "request": request, "answer": answer})
        return answer

    def _dispatch(self, request: Any) -> dict[str, Any]:
        self._requests += 1
        if self._requests > MAX_REQUESTS:
            raise Refused(f"a connection takes at most {MAX_REQUESTS:,} requests")
        if not isinstance(request, dict) or not isinstance(request.get("op"), str):
            raise Refused('a request is one JSON object with "op"')
        if self.ended:
            raise Refused("this seed has ended; open another connection")
        match request["op"]:
            case "space":
                return self._space(request)
            case "measure":
                return self._measure(request)
            case "verdict":
                return self._verdict(request)
            case "end":
                return self._end(request)
            case other:
                raise Refused(f"there is no op {other[:40]!r}; there are space, measure, verdict, end")

    def _space(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _only(request, "op", "seed")
        seed = request.get("seed")
        if isinstance(seed, bool) or not isinstance(seed, int):
            raise Refused("seed is no integer")
        if self.seed is not None:
            raise Refused(f"this connection replays seed {self.seed}; open another for seed {seed}")
        self.seed = seed
        self._random = Random(f"{seed} {self.recording.kernel} {self.recording.device}")
        waves = Random(self.disturbance.field_seed)
        self._waves = [
            [waves.gauss(0, 1.5), waves.uniform(0, 6.3), waves.gauss(0, 1)] for _ in range(3 * len(self._names))
        ]
        ordered = sorted(self.recording.typical, key=self.typical)
        low, high = START_SHARES
        place = min(int(self._random.uniform(low, high) * len(ordered)), len(ordered) - 1)
        return {
            "parameters": {name: list(values) for name, values in self.recording.parameters.items()},
            "valid": [list(one) for one in self.recording.entries],
            "start": list(ordered[place]),
            "budget": self.budget,
            "device": self.recording.device,
            "kernel": self.recording.kernel,
            "unit": self.recording.unit,
        }

    @property
    def _names(self) -> list[str]:
        return list(self.recording.parameters)

    def typical(self, configuration: Configuration) -> float:
        """Return the mean time of a configuration that runs, without drift."""
        return self.recording.typical[configuration] * self._field(configuration)

    # A sum of random sine waves over pairs of parameters: neighbours get similar factors, and the best configuration
    # is another one than in the recording.
    def _field(self, configuration: Configuration) -> float:
        if not self.disturbance.field:
            return 1.0
        places = [
            values.index(value) / max(len(values) - 1, 1)
            for value, values in zip(configuration, self.recording.parameters.values(), strict=True)
        ]
        count = len(places)
        total = 0.0
        for number, (frequency, phase, weight) in enumerate(self._waves):
            one, two = places[number % count], places[(number * 7 + 3) % count]
            total += weight * sin(frequency * (one + two) * 2 + phase)
        return exp(self.disturbance.field * total / (3 * count) ** 0.5)

    def _measure(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _only(request, "op", "config", "launches")
        configuration, entry = self._entry(request.get("config"))
        launches = request.get("launches", 1)
        if isinstance(launches, bool) or not isinstance(launches, int) or not 1 <= launches <= MAX_LAUNCHES:
            raise Refused(f"launches is {launches!r}; it takes 1 to {MAX_LAUNCHES}")
        if configuration not in self._measured:
            if len(self._measured) >= self.budget:
                raise Refused(f"the budget of {self.budget} configurations is spent")
            self._measured[configuration] = 0
        left = self.budget - len(self._measured)
        if entry.failed:
            return {"failed": entry.failed, "left": left}
        return {"times": [self._launch(configuration, entry) for _ in range(launches)], "left": left}

    def _launch(self, configuration: Configuration, entry: Recorded) -> float:
        number = self._measured[configuration]
        self._measured[configuration] += 1
        warm = entry.times[1:] or entry.times
        time = entry.times[0] if number == 0 else warm[self._random.randrange(len(warm))]
        self._launches += 1
        drift = self.disturbance.drift
        try:
            time *= self._field(configuration) * (1 + drift) ** self._launches
        except OverflowError:
            time = inf
        if not is_time(time):
            raise Refused(f"after {self._launches} launches a drift of {drift:g} leaves no time; use a smaller --drift")
        return time

    def _entry(self, listed: Any) -> tuple[Configuration, Recorded]:
        if self.seed is None:
            raise Refused('the first request of a connection is {"op":"space","seed":…}')
        if not isinstance(listed, list):
            raise Refused("a configuration is a list of values in the order of the parameters")
        try:
            configuration = tuple(listed)
            return configuration, self.recording.entries[configuration]
        except (KeyError, TypeError):
            raise Refused(f"{str(listed)[:200]} is no valid configuration") from None

    def _verdict(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _only(request, "op", "config", "against", "decision", "ratio", "interval")
        self._entry(request.get("config"))
        self._entry(request.get("against"))
        decision = request.get("decision")
        if not isinstance(decision, str) or decision not in DECISIONS:
            raise Refused(f"decision is {decision!r}; it is one of {', '.join(sorted(DECISIONS))}")
        interval = request.get("interval")
        if not _number_or_none(request.get("ratio")) or not (
            interval is None
            or (isinstance(interval, list) and len(interval) == 2 and all(map(_number_or_none, interval)))
        ):
            raise Refused("ratio is a positive number or null, interval two of them or null")
        self._verdicts += 1
        if self._verdicts > MAX_VERDICTS:
            raise Refused(f"a connection takes at most {MAX_VERDICTS} verdicts")
        return {"ok": True}

    def _end(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _only(request, "op", "kept")
        configuration, entry = self._entry(request.get("kept"))
        if entry.failed or configuration not in self._measured:
            raise Refused("kept is a configuration that was measured and did not fail")
        self.ended = True
        return {"ok": True}


def _only(request: Mapping[str, Any], *names: str) -> None:
    if unknown := set(request) - set(names):
        raise Refused(f"op {request['op']} has no field {min(unknown)[:40]!r}; its fields are {', '.join(names)}")


def _number_or_none(value: Any) -> bool:
    return value is None or is_time(value)
