"""Tunables: parameters of a program that hints may change, each with a name, allowed values and a present value."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from kernelcast.probe.recording.recorder import printable
from kernelcast.tuning.experiment import Objective, Rules
from kernelcast.wire.errors import FrameError, TunableError
from kernelcast.wire.frames import TunableClaim, Tunables, encode
from kernelcast.wire.kernels import label
from kernelcast.wire.tuning.approvals import changes_results

Plain = int | float | str
Value = TypeVar("Value", bound=Plain)
Value_co = TypeVar("Value_co", bound=Plain, covariant=True)
SCOPES: Final = ("local", "collective")
GRANULARITIES: Final = ("call", "step", "epoch", "restart")
# Bounds of a process's announcement, which is one frame; `TunableSet.add` checks its size as well.
MAX_TUNABLES: Final = 64
MAX_ALLOWED: Final = 256
MAX_TEXT: Final = 128


@dataclass(frozen=True, slots=True)
class Terms:
    """Conditions for changing a tunable, and the kernels that it affects.

    Attributes:
        scope: `local`, or `collective` if all ranks must have the same value.
        granularity: When it may change: at a `call` or `step` (both: at `step()`), at an `epoch`
            (`step(epoch=True)`), or only by a `restart`.
        kind: Kind of parameter, which rules can match: `block_size`, `generic`, …
        kernels: Signatures of the affected kernels, as given to `observe`; empty for all.
        group: Lets the ranks exchange texts: see `kernelcast.probe.ranks.group`. Without it a collective tunable
            rejects every hint.
        changes_results: Whether another value changes the program's results; None decides by the kind.
        worst, settle, run_seconds, objective: As of `Rules`; None for the usual ones.
    """

    scope: str = "local"
    granularity: str = "step"
    kind: str = "generic"
    kernels: tuple[str, ...] = ()
    group: Any = None
    changes_results: bool | None = None
    worst: float | None = None
    settle: int | None = None
    run_seconds: float | None = None
    objective: str = Objective.MEAN

    @property
    def needs_approval(self) -> bool:
        """Whether a person has to approve each value."""
        return changes_results(self.kind, self.changes_results)

    def rules(self, rules: Rules) -> Rules:
        """Return the limits of a trial with what the program declares.

        Raises:
            TunableError: A declared limit cannot be used.
        """
        check_objective(self.scope, self.objective)
        usual = rules.by_epoch() if self.granularity == "epoch" else rules
        return usual.declared(self.worst, self.settle, self.run_seconds, self.objective)


class Tunable(Generic[Value_co]):
    """A parameter of the program that hints may change; `tunable` makes it.

    Attributes:
        name: Its name.
        value: The value in force, of the type in which it was registered; it changes in `step` only.
        allowed: The values that it may take, as text, in the program's order.
    """

    __slots__ = ("__weakref__", "_allowed", "_settled", "_value", "name", "rollbacks", "rolled_back_ns", "terms")

    def __init__(self, name: str, allowed: Sequence[Value_co], value: Value_co, terms: Terms) -> None:
        self.name = name
        self.terms = terms
        self._allowed = {text(item): item for item in allowed}
        self._value = value
        self._settled = text(value)
        self.rollbacks = 0
        """Number of consecutive hints that were tried and rolled back."""
        self.rolled_back_ns = 0
        """Unix nanoseconds of the last of them."""
        _check(self, value, len(allowed))

    @property
    def value(self) -> Value_co:
        """The value in force, of the type in which it was registered."""
        return self._value

    @property
    def shown(self) -> str:
        """The value in force, as text."""
        return text(self._value)

    @property
    def kept(self) -> str:
        """The value that is kept, as text; during a trial another may be in force."""
        return self._settled

    @property
    def allowed(self) -> tuple[str, ...]:
        """The allowed values, as text, in the program's order."""
        return tuple(self._allowed)

    def put(self, shown: str) -> None:
        """Set an allowed value, given as text."""
        self.set_for_trial(shown)
        self._settled = shown

    def set_for_trial(self, shown: str) -> None:
        """Set an allowed value for a few steps of a trial; the announced value does not change."""
        self._value = self._allowed[shown]

    def overlaps(self, other: "AnyTunable") -> bool:
        """Whether both affect the same kernel, so that only one may be tried at a time."""
        mine, theirs = set(self.terms.kernels), set(other.terms.kernels)
        return not mine or not theirs or bool(mine & theirs)

    def claim(self, device_model: str, code_version: str) -> TunableClaim:
        """Return the announcement for the exporter, with kernels by their label values, so that series join."""
        terms = self.terms
        return TunableClaim(
            self.name,
            self._settled,
            self.allowed,
            terms.kind,
            terms.scope,
            terms.granularity,
            tuple(label(kernel) for kernel in terms.kernels),
            device_model,
            code_version,
            terms.changes_results,
        )


AnyTunable = Tunable[Plain]


class TunableSet:
    """The tunables of one process; safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread in here
        self._tunables: dict[str, AnyTunable] = {}

    def add(self, tunable: AnyTunable) -> None:
        """Register a tunable; one of the same name is replaced.

        Raises:
            TunableError: There are too many, or together they are too long for a frame.
        """
        with self._lock:
            tunables = {**self._tunables, tunable.name: tunable}
            if len(tunables) > MAX_TUNABLES:
                raise TunableError(f"{len(tunables)} tunables are registered; the limit is {MAX_TUNABLES}; drop some")
            try:
                list(encode(Tunables(tuple(item.claim("x" * 64, "x" * 64) for item in tunables.values()))))
            except FrameError as error:
                raise TunableError(f"tunable {tunable.name!r} makes them too long for one frame: {error}") from error
            self._tunables = tunables

    def get(self, name: str) -> AnyTunable | None:
        """Return the tunable with a name; None if there is none."""
        return self._tunables.get(name)

    def unknown(self, name: str) -> str:
        """Return the sentence that there is no tunable with a name."""
        known = ", ".join(tunable.name for tunable in self._tunables.values()) or "none"
        return f"this process has no tunable {name!r}; it has: {known}"

    def all(self) -> Iterable[AnyTunable]:
        """Return all tunables in the order of registration."""
        return self._tunables.values()


def check_objective(scope: str, objective: str) -> None:
    """Check that a collective trial, which compares sums over the ranks, has the mean as its objective.

    Raises:
        TunableError: It has another objective.
    """
    if scope == "collective" and objective != Objective.MEAN:
        raise TunableError(f"objective is {objective!r}; ranks judge the sums of their times, so only the mean can be")


def text(value: Plain) -> str:
    """Format a value as in frames and hints."""
    return value if isinstance(value, str) else repr(value)


def printable_kernels(kernels: Iterable[str]) -> tuple[str, ...]:
    """Convert signatures to the recorder's form."""
    return tuple(dict.fromkeys(printable(kernel) for kernel in kernels))


def _check(tunable: AnyTunable, value: Plain, listed: int) -> None:
    name = tunable.name
    for what, shown in (("name", name), *(("value", item) for item in tunable.allowed)):
        if not 1 <= len(shown) <= MAX_TEXT or not shown.isprintable() or "," in shown:
            raise TunableError(
                f"tunable {name!r} has {what} {shown!r}; it must be 1 to {MAX_TEXT} printable characters without comma"
            )
    if not 1 <= len(tunable.allowed) == listed <= MAX_ALLOWED:
        raise TunableError(
            f"tunable {name!r} allows {listed} values, {len(tunable.allowed)} of them different; "
            f"1 to {MAX_ALLOWED} different ones can be; thin them out"
        )
    if text(value) not in tunable.allowed:
        raise TunableError(f"tunable {name!r} is {value!r}, which {tunable.allowed} does not contain; add it")
    tunable.terms.rules(Rules())
    if tunable.terms.scope not in SCOPES or tunable.terms.granularity not in GRANULARITIES:
        raise TunableError(
            f"tunable {name!r} has scope {tunable.terms.scope!r} and granularity {tunable.terms.granularity!r}; "
            f"they must be one of {SCOPES} and one of {GRANULARITIES}"
        )
