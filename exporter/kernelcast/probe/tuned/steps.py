"""A space whose configuration changes between steps or epochs, searched and proved by the times of those.

Where the program waits for its device every few steps only, the steps up to a wait take the place of one.

`HintReceiver.at_boundary` calls `step_ended` of each `Driver` on the program's thread.
"""

from collections.abc import Callable
from typing import Final, Protocol

from kernelcast.probe.conditions.pauses import CheckpointWatch
from kernelcast.probe.tuned.confirmation import Confirmation
from kernelcast.probe.tuned.shapes import SearchedShapes
from kernelcast.probe.tuned.terms import (
    CallAccounts,
    CallRequest,
    CallTerms,
    Configuration_co,
    Configurations,
    ShapeBucket,
)
from kernelcast.probe.tuned.waits import DeviceWaits
from kernelcast.tuning.journal import Journal

TRIED: Final = "a configuration is being tried"
MOST_BANNED_IN_A_ROW: Final = 64
"""Configurations that earlier runs have banned and a campaign asks for: it gets that many answers at one boundary."""


class Driver(Protocol):
    """Tries values at the boundaries of steps or epochs: a trial, a search by steps, or a council of the ranks."""

    @property
    def reason(self) -> str:
        """The reason for which nothing else may be tried; empty if it may."""

    def step_ended(self, items: float, *, epoch: bool) -> None:
        """Handle the end of a step."""

    def close(self, reason: str) -> None:
        """End what is tried with the kept value, because the program ends."""

    def forked(self) -> None:
        """Put the kept value in force in a forked child, which gets no `step_ended`."""


class FirstStep:
    """Does something once, at the end of the next step or epoch: for a space or tunable declared before the start.

    Implements `Driver`, because only steps may change a configuration or a tunable.
    """

    reason = ""

    def __init__(self, begin: Callable[[], None], *, by_epoch: bool = False) -> None:
        self._begin: Callable[[], None] | None = begin
        self._by_epoch = by_epoch

    @property
    def has_run(self) -> bool:
        """Whether it is done."""
        return self._begin is None

    def step_ended(self, items: float, *, epoch: bool) -> None:
        """Do it once."""
        del items
        if self._by_epoch and not epoch:
            return
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()

    def close(self, reason: str) -> None:
        """There is nothing to end."""

    def forked(self) -> None:
        """The start stays in force."""


class TunedSteps(SearchedShapes[Configuration_co]):
    """Sets the configuration of each step; the first one after a change is not compared. For the program's thread.

    Args:
        terms: The conditions; a call is a step, or an epoch.
        space: The configurations.
        journal: The journal of this node; None remembers nothing.
        stopped: Returns the reason for which nothing may be tried; empty if it may. Takes the search that asks.
        clock: Seconds.
        accounts: Budget and reports of the process.
        by_epoch: Whether the configuration changes at epochs only.

    Attributes:
        configuration: The configuration in force.
    """

    def __init__(  # noqa: PLR0913  the parts of the process
        self,
        terms: CallTerms,
        space: Configurations[Configuration_co],
        journal: Journal | None = None,
        stopped: Callable[[Driver], str] = lambda _: "",
        clock: Callable[[], float] | None = None,
        accounts: CallAccounts | None = None,
        *,
        by_epoch: bool = False,
    ) -> None:
        super().__init__(terms, space, journal, lambda: stopped(self), clock, accounts)
        self._by_epoch = by_epoch
        self._only = self._bucket("")
        self._running: CallRequest | None = None
        self._in_force = self._only.kept
        self._is_first_after_change = False
        self._checkpoints = CheckpointWatch()
        self._waits = DeviceWaits(is_watching=not by_epoch)
        self._seconds = self._items = 0.0
        self._began = self._clock()
        self.configuration = space.configuration(self._in_force)

    @property
    def reason(self) -> str:
        """The reason for which nothing else may be tried; empty if it may."""
        return TRIED if self._running is not None else ""

    @property
    def kept_text(self) -> str:
        """The kept configuration, as text."""
        return self._space.text(self._only.kept)

    @property
    def tried(self) -> set[str]:
        """Candidates that have run, as text."""
        return {self._space.text(ordinal) for ordinal in self._only.calls}

    def step_ended(self, items: float, *, epoch: bool) -> None:
        """Handle the end of a step, and choose the configuration of the next one."""
        now = self._clock()
        self._seconds += now - self._began
        self._items += items
        if epoch if self._by_epoch else self._waits.step_ended(now - self._began):
            self._guarded(self._measure)
            self._guarded(self._choose)
            self._seconds = self._items = 0.0
        self._began = self._clock()

    def close(self, reason: str) -> None:
        """Set the kept configuration, because the program ends; a candidate is not to blame for that."""
        self._abandon()
        super().close(reason)

    def forked(self) -> None:
        """Set the kept configuration in a forked child."""
        self._running = None
        self._set(self._only.kept)

    def _measure(self) -> None:
        request, is_first, self._is_first_after_change = self._running, self._is_first_after_change, False
        is_stopped = request is not None and bool(self._stopped())
        wrote_checkpoint = self._checkpoints.in_step() and not self._by_epoch
        if not wrote_checkpoint and (is_first or (is_stopped and self._in_force != self._only.kept)):
            self._charge(self._only, self._seconds)
        if request is None:
            return
        if is_stopped:
            self._abandon()
        elif not is_first and not wrote_checkpoint:
            self._running = None
            self._record(self._only, request, self._seconds, self._items)

    def _choose(self) -> None:
        if self._running is None:
            self._running = self._allowed_request()
        request = self._running
        self._set(self._only.kept if request is None else request.ordinal)

    def _allowed_request(self) -> CallRequest | None:
        """Return the campaign's request, once it asks for a configuration that is not banned."""
        bucket = self._only
        if bucket.campaign is None and not bucket.check.is_due(self._clock):
            return None
        for _ in range(MOST_BANNED_IN_A_ROW):
            request = self._request(bucket)
            if request is None or request.ordinal == bucket.kept or bucket.calls[request.ordinal]:
                return request
            reason = self._reason_against(bucket, request.ordinal)
            if not reason:
                self._notes.begin(bucket.name, request.ordinal)
                return request
            self._answer_failed(bucket, reason)
        return None

    def _answer_failed(self, bucket: ShapeBucket, reason: str) -> None:
        self._answer_request(bucket, lambda campaign: campaign.failed(reason))

    def _abandon(self) -> None:
        if self._in_force != self._only.kept:
            self._notes.end(self._only.name, self._in_force, None)
        self._running = None
        self._only.times = []
        self._set(self._only.kept)

    def _set(self, ordinal: int) -> None:
        """Put a configuration in force; in an experiment, the experiment itself leaves out the first step."""
        campaign = self._only.campaign
        if ordinal != self._in_force:
            self._in_force = ordinal
            self.configuration = self._space.configuration(ordinal)
            proves = isinstance(campaign, Confirmation) or getattr(campaign, "proving", False)
            self._is_first_after_change = not self._by_epoch and not proves
