"""Types that `TunedCalls` works with: the terms of calls, the campaign that searches, and the state of one shape."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from kernelcast.probe.trial_budget import LaunchCost, TrialBudget
from kernelcast.probe.tuned.checks import Check
from kernelcast.probe.tuned.rechecks import Recheck
from kernelcast.probe.tuned.reports import SearchReports
from kernelcast.tuning.experiment import Rules
from kernelcast.wire.tuning.experience import Experience

Configuration_co = TypeVar("Configuration_co", covariant=True)
Result = TypeVar("Result")


class CallRequest(Protocol):
    """A configuration that a campaign wants to be run."""

    @property
    def ordinal(self) -> int:
        """Number of the configuration."""

    @property
    def launches(self) -> int:
        """Calls in a row."""

    @property
    def may_wait(self) -> bool:
        """Whether it need not follow the request before at once."""


class CallCampaign(Protocol):
    """Searches and proves configurations; `kernelcast.tuning.campaign` has one."""

    kept: int

    def next(self) -> CallRequest | None:
        """Return what to run next; None at the end."""

    def measured(self, times: list[float]) -> None:
        """Answer the request with seconds per item."""

    def failed(self, reason: str) -> None:
        """Answer the request: the configuration failed."""

    def refused(self, reason: str) -> None:
        """Answer the request: it was not run."""


@dataclass(frozen=True, slots=True)
class CallTerms:
    """Conditions of the calls.

    Attributes:
        name: Name of the space.
        shape: Returns the shape bucket of a call from its arguments; each has a campaign of its own.
        items: Returns the units of work of a call from its arguments.
        check: Compares a candidate's numbers at some calls with the kept configuration's; needs `repeatable`.
        limit_seconds: A candidate that takes longer is banned.
        repeatable: A call that failed with a candidate may be repeated with the kept configuration.
        share: Share of the time since the first call of a shape that its trial calls may cost; None for that of the
            process, which all its trials have together.
        wait: Takes a trial call's arguments, and waits until their devices have finished. Returns a function that
            takes the result, and waits until they have finished the call.
        prepare: Takes the configuration and a call's arguments, and compiles the call's code, before a
            configuration is first timed on a device.
        devices: Takes a call's arguments; returns the devices for which `prepare` compiles it.
        undo: Takes the same before a call, and returns a function that restores the arguments that the call changes.
        code_version: Version of the program.
        approved_by: The person who approved the search of a space that changes results.
        resumes: A search that is open when the process ends goes on in the next one, because its calls are long.
        experiment: Limits of the check of a kept configuration.
    """

    name: str
    shape: Callable[..., object] | None = None
    items: Callable[..., float] | None = None
    check: Check | None = None
    limit_seconds: float = float("inf")
    repeatable: bool = True
    share: float | None = None
    wait: Callable[[Any], Callable[[Any], None]] | None = None
    code_version: str = ""
    prepare: Callable[..., None] | None = None
    undo: Callable[..., Callable[[], object]] | None = None
    approved_by: str = ""
    devices: Callable[[Any], object] | None = None
    resumes: bool = False
    experiment: Rules = field(default_factory=Rules)


@dataclass(frozen=True, slots=True)
class CallAccounts:
    """Accounts that all decorated functions and hints of a process share.

    Attributes:
        budget: Time that trials may cost.
        reports: Reports searches and their results.
        reverted: Returns the reason for which the start runs, not the configuration in the journal; empty if none.
    """

    budget: TrialBudget = field(default_factory=lambda: TrialBudget(share=1.0))
    reports: SearchReports = field(default_factory=lambda: SearchReports(lambda _outcome: None))
    reverted: Callable[[], str] = str


class Configurations(Protocol[Configuration_co]):
    """The configurations of a space by number.

    Attributes:
        start: Number of the configuration of the untuned program.
    """

    start: int

    def configuration(self, ordinal: int) -> Configuration_co:
        """Return a configuration."""

    def text(self, ordinal: int) -> str:
        """Return a configuration as text, for the journal."""

    def find(self, text: str) -> int | None:
        """Return the number of a configuration's text; None if it is not valid any more."""

    def campaign(self, name: str) -> CallCampaign:
        """Make the campaign of a shape bucket."""


@dataclass(slots=True)
class ShapeBucket:
    """The calls of one shape.

    Attributes:
        name: Name of the space, with the shape.
        campaign: Its campaign; None once it has ended, and where there are too many shapes.
        kept: Number of the kept configuration.
        times: Seconds per item of the open request's calls.
        calls: Calls of each candidate.
        cost: Usual time of the kept configuration's calls, and what trial calls and compilations cost beyond that.
        prepared: Configurations that are compiled, each with the devices.
        configuration: The kept configuration with its number, once a call has used it.
        check: When the kept configuration is checked again.
        start: Number of the configuration that the kept one has replaced, and is checked against.
        offered: Findings of other nodes that the search knows.
        is_announced: Whether the expected time of its search was reported.
    """

    name: str
    campaign: CallCampaign | None
    kept: int
    cost: LaunchCost
    times: list[float] = field(default_factory=list)
    calls: Counter[int] = field(default_factory=Counter)
    check: Recheck = field(default_factory=Recheck)
    start: int = 0
    offered: Experience | None = None
    prepared: set[tuple[int, object]] = field(default_factory=set)
    configuration: tuple[int, Any] | None = None
    is_announced: bool = False


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """One call of the program.

    Attributes:
        run: Runs it with a configuration, given by number.
        prepare: Compiles its code with a configuration.
        undo: Returns a function that restores the arguments as they are now.
        items: Its units of work.
        arguments: The positional and the named ones.
    """

    run: Callable[[int], Result]
    prepare: Callable[[int], None]
    undo: Callable[[int], Callable[[], object]]
    items: float
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
