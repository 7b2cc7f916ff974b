"""A decorated function: each call runs the kept configuration, or the one that a campaign wants to measure.

The program comes first. A candidate that raises, gives wrong numbers or takes too long is banned and the call is
repeated with the kept configuration. Trial calls may cost a share of the time that the calls take; beyond it the kept
configuration runs, at the cost of one comparison.
"""

import threading
from collections.abc import Callable
from functools import wraps
from math import inf
from typing import Any, Final

from kernelcast.probe.tuned.checks import copied
from kernelcast.probe.tuned.confirmation import Confirmation
from kernelcast.probe.tuned.shapes import SearchedShapes, key_of
from kernelcast.probe.tuned.terms import (
    Call,
    CallAccounts,
    CallRequest,
    CallTerms,
    Configuration_co,
    Configurations,
    Result,
    ShapeBucket,
)
from kernelcast.tuning.journal import Journal

CHECKED_CALLS: Final = (0, 16, 64, 256, 1024)
"""Calls of a candidate whose numbers are checked: the first, and a few of those by which it is proved."""


class TunedCalls(SearchedShapes[Configuration_co]):
    """Runs a function with the configuration of each call. For any thread; one call at a time is a trial.

    Each *shape bucket* (calls with equal shapes) has its own kept configuration and campaign. A request of the campaign
    is some calls in a row with one configuration; their times answer it.

    Args:
        As of `SearchedShapes`.

    Attributes:
        call: Runs a function with its positional and named arguments.
        when_attached: Makes what runs the calls in place of this one, once `attach` is called.
    """

    def __init__(
        self,
        terms: CallTerms,
        space: Configurations[Configuration_co],
        journal: Journal | None = None,
        stopped: Callable[[], str] = str,
        clock: Callable[[], float] | None = None,
        accounts: CallAccounts | None = None,
    ) -> None:
        super().__init__(terms, space, journal, stopped, clock, accounts)
        self._lock = threading.Lock()  # held during a trial, in which the program's function runs
        self.call: Callable[..., Any] = self._call
        self.when_attached: Callable[[], TunedCalls[Configuration_co]] | None = None

    def attach(self) -> None:
        """Let another object run the calls from now on, because a probe has started."""
        make, self.when_attached = self.when_attached, None
        if make is not None:
            self.call = make().call

    def decorate(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """Return the function without its first argument, the configuration, which each call gets from here."""

        @wraps(function)
        def tuned(*arguments: Any, **named: Any) -> Result:
            result: Result = self.call(function, arguments, named)
            return result

        return tuned

    def _call(self, function: Callable[..., Result], arguments: tuple[Any, ...], named: dict[str, Any]) -> Result:
        terms, space = self._terms, self._space
        bucket = self._bucket(key_of(terms.shape(*arguments, **named)) if terms.shape else "")
        # The usual path: no lock, two comparisons. While another call is a trial, this one waits for nothing.
        only_kept = bucket.campaign is None and not bucket.check.is_due(self._clock)
        if only_kept or not self._lock.acquire(blocking=False):
            return function(self._kept_configuration(bucket), *arguments, **named)

        def run(ordinal: int) -> Result:
            return function(space.configuration(ordinal), *arguments, **named)

        def prepare(ordinal: int) -> None:
            if terms.prepare:
                terms.prepare(space.configuration(ordinal), *arguments, **named)

        def undo(ordinal: int) -> Callable[[], object]:
            return terms.undo(space.configuration(ordinal), *arguments, **named) if terms.undo else lambda: None

        try:
            request = self._request(bucket)
            if request is None:
                return run(bucket.kept)
            items = self._items(bucket, arguments, named) if terms.items else 1.0
            if not 0 < items < inf:
                return run(bucket.kept)  # a call without work is not compared
            call = Call(run, prepare, undo, items, (arguments, named))
            if isinstance(bucket.campaign, Confirmation) and not bucket.campaign.is_kept_tried and terms.repeatable:
                return self._try_kept(bucket, bucket.campaign, call)
            return self._trial(bucket, request, call)
        finally:
            self._lock.release()

    def _items(self, bucket: ShapeBucket, arguments: tuple[Any, ...], named: dict[str, Any]) -> float:
        """Return the units of work of a call; an error of the program's function ends the search, not the call."""
        count = self._terms.items
        items = self._guarded(lambda: float(count(*arguments, **named) if count else 1.0))
        if items is None:
            self._interrupt(bucket)
        return items or 0.0

    def _kept_configuration(self, bucket: ShapeBucket) -> Any:
        """Return the kept configuration, which is made once for many calls."""
        kept, known = bucket.kept, bucket.configuration
        if known is None or known[0] != kept:
            known = bucket.configuration = (kept, self._space.configuration(kept))
        return known[1]

    def _try_kept(self, bucket: ShapeBucket, confirmation: Confirmation, call: Call[Result]) -> Result:
        """Run the kept configuration as a candidate against the start, which alone is sure to be right.

        After an update of the code, a library or the driver it may fail, or give other numbers than when it was kept.
        """
        undo: Callable[[], object] = _nothing
        try:
            undo = call.undo(bucket.kept)
            self._prepare(bucket, bucket.kept, call)
            began = self._clock()
            result = call.run(bucket.kept)
        except Exception as error:  # noqa: BLE001  the start raises it again if it is the program's own
            undo()
            result = call.run(bucket.start)
            self._take_back(bucket, f"{type(error).__name__}: {error}")
            return result
        confirmation.is_kept_tried = True
        if not self._terms.check:
            return result
        kept = self._guarded(lambda: (copied(result),))
        undo()
        self._add_lost_seconds(bucket, self._clock() - began)
        result = call.run(bucket.start)
        if kept is None:
            self._end_unchecked(bucket)
        elif wrong := self._difference(kept[0], result, "start"):
            self._take_back(bucket, wrong)
        return result

    def _trial(self, bucket: ShapeBucket, request: CallRequest, call: Call[Result]) -> Result:
        # Paths of a candidate's call; each ends with an answer to the campaign and a result for the program:
        #   it is banned already         -> failed;   the kept configuration runs
        #   it raises                    -> failed;   the call is repeated with the kept one (`_repeat`)
        #   the kept one raises as well  -> refused;  the program's error is raised
        #   its result cannot be copied  -> the search ends, because no numbers can be checked; the kept one's is used
        #   no wait for its devices      -> the search ends, because its time would be that of the launch alone
        #   its numbers are wrong        -> failed;   the result of the kept one is used, as of each checked call
        #   it is too slow               -> failed;   its result is used, unless it was checked
        #   else                         -> measured, once the request has all its times
        ordinal, run = request.ordinal, call.run
        is_candidate = ordinal != bucket.kept
        is_first_call = is_candidate and not bucket.calls[ordinal]
        if is_first_call and (reason := self._reason_against(bucket, ordinal)):
            self._answer_request(bucket, lambda campaign: campaign.failed(reason))
            return run(bucket.kept)
        if is_first_call:
            self._notes.begin(bucket.name, ordinal)
        undo: Callable[[], object] = _nothing
        began = None
        try:
            undo = call.undo(ordinal) if is_candidate else undo
            if unprepared := self._prepare(bucket, ordinal, call):
                self._answer_request(bucket, lambda campaign: campaign.refused(unprepared))
                return run(ordinal)
            began = self._clock()
            timed = self._timed(call, ordinal)
        except Exception as error:
            if not is_candidate:
                self._kept_failed(bucket, error)
                raise
            self._add_lost_seconds(bucket, 0.0 if began is None else self._clock() - began)
            return self._repeat(bucket, ordinal, run, undo, error)
        except BaseException:
            self._notes.end(bucket.name, ordinal, None)
            raise
        if timed is None:
            self._notes.end(bucket.name, ordinal, None)
            self._end_unchecked(bucket)
            return run(bucket.kept)
        return self._judged(bucket, request, call, undo, *timed)

    def _judged(
        self,
        bucket: ShapeBucket,
        request: CallRequest,
        call: Call[Result],
        undo: Callable[[], object],
        result: Result,
        seconds: float,
    ) -> Result:
        """Check a candidate's result and its time, and record the time; returns the result for the program."""
        ordinal, run = request.ordinal, call.run
        is_candidate = ordinal != bucket.kept
        checks = self._terms.check and self._terms.repeatable and not isinstance(bucket.campaign, Confirmation)
        if is_candidate and bucket.calls[ordinal] in CHECKED_CALLS and checks:
            candidate = self._guarded(lambda: (copied(result),))
            undo()
            self._add_lost_seconds(bucket, min(seconds, bucket.cost.usual_seconds))  # the call is repeated
            result = run(bucket.kept)
            if not self._is_right(bucket, ordinal, candidate, result):
                self._charge(bucket, seconds)
                return result
        if is_candidate and seconds > self._terms.limit_seconds:
            limit = f"the limit is {self._terms.limit_seconds:g} s"
            self._charge(bucket, seconds)
            self._ban(bucket, ordinal, f"a call took {seconds:.3g} s; {limit}")
            return result
        self._record(bucket, request, seconds, call.items)
        return result

    def _kept_failed(self, bucket: ShapeBucket, error: Exception) -> None:
        """Forget a kept configuration that has never run here and may fail since an update: no call is repeated."""
        if isinstance(bucket.campaign, Confirmation) and not self._terms.repeatable and not bucket.cost.is_known:
            self._forget_kept(bucket, f"{type(error).__name__}: {error}")

    def _prepare(self, bucket: ShapeBucket, ordinal: int, call: Call[Result]) -> str:
        """Compile a configuration before it is first timed on a device; that time is lost, and says nothing of it.

        Returns:
            The reason for which the kept one could not be prepared; that of a candidate is raised.
        """
        devices = self._terms.devices if self._terms.prepare else None
        compiled = (ordinal, self._guarded(lambda: devices(call.arguments)) if devices else None)
        if compiled in bucket.prepared:
            return ""
        began, reason = self._clock(), ""
        try:
            call.prepare(ordinal)
        except Exception as error:
            if ordinal != bucket.kept:
                raise
            reason = f"it could not be prepared: {type(error).__name__}: {error}"
        finally:
            seconds = self._clock() - began
            if ordinal != bucket.kept:  # the program needs the kept one itself
                self._add_lost_seconds(bucket, seconds)
        prepared: Callable[[int, float], None] | None = getattr(bucket.campaign, "prepared", None)
        if prepared is not None:
            self._guarded(lambda: prepared(ordinal, seconds))
        bucket.prepared.add(compiled)
        return reason

    def _timed(self, call: Call[Result], ordinal: int) -> tuple[Result, float] | None:
        """Return a call's result and seconds; None, without a call, if it cannot wait for the devices."""
        wait: Callable[[Any], None] | None = _nothing_of
        if begin := self._terms.wait:
            wait = self._guarded(lambda: begin(call.arguments))
        if wait is None:
            return None
        began = self._clock()
        result = call.run(ordinal)
        wait(result)
        return result, self._clock() - began

    def _repeat(
        self,
        bucket: ShapeBucket,
        ordinal: int,
        run: Callable[[int], Result],
        undo: Callable[[], object],
        error: Exception,
    ) -> Result:
        """Repeat a call with the kept configuration; if that fails too, the candidate is not to blame."""
        reason = f"{type(error).__name__}: {error}"
        if not self._terms.repeatable:
            self._ban(bucket, ordinal, reason)
            raise error
        try:
            undo()
            result = run(bucket.kept)
        except Exception:
            self._answer_request(bucket, lambda campaign: campaign.refused(reason))
            raise
        self._ban(bucket, ordinal, reason)
        return result

    def _is_right(self, bucket: ShapeBucket, ordinal: int, candidate: tuple[Any] | None, result: Any) -> bool:
        """Ban a candidate whose numbers are wrong; end the search if its result could not be copied."""
        if candidate is None:
            self._notes.end(bucket.name, ordinal, None)
            self._end_unchecked(bucket)
            return False
        wrong = self._difference(candidate[0], result, "kept configuration")
        if wrong:
            self._ban(bucket, ordinal, wrong)
        return not wrong

    def _difference(self, result: Any, reference: Any, other: str) -> str:
        """Return why a result is not proved right by that of another configuration; empty if it is."""
        try:
            is_right = self._terms.check is None or bool(self._terms.check(result, reference))
        except Exception as error:  # noqa: BLE001  numbers that cannot be compared are not proved right
            return f"its result cannot be compared: {type(error).__name__}: {error}"
        return "" if is_right else f"its numbers differ from those of the {other}"


def _nothing() -> None:
    """Restore nothing."""


def _nothing_of(_result: object) -> None:
    """Wait for nothing."""
