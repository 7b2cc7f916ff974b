"""A decorated function: each call runs the kept configuration, or the one that a campaign wants to measure.

The program comes first. A candidate that raises, gives wrong numbers or takes too long is banned and the call is
repeated with the kept configuration. Trial calls may cost a share of the time that the calls take; beyond it the kept
configuration runs, at the cost of one comparison.
"""

import threading
from collections.abc import Callable
from functools import partial, wraps
from math import inf
from statistics import median
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from kernelcast.probe.tuned.checks import copied
from kernelcast.probe.tuned.confirmation import Confirmation, Confirmed
from kernelcast.probe.tuned.notes import CandidateNotes
from kernelcast.probe.tuned.terms import (
    Call,
    CallAccounts,
    CallCampaign,
    CallRequest,
    CallTerms,
    Configuration_co,
    Configurations,
    Result,
    ShapeBucket,
)
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal
from kernelcast.wire.tuning.experience import Experience

# Shapes of a function that are searched; further ones run the kept configuration.
MAX_SHAPES: Final = 16
# Shapes whose kept configuration is known; further ones run the start and take no memory.
MAX_BUCKETS: Final = 1024
# Calls after which a candidate is not held responsible for a later end of the process.
SURVIVED_CALLS: Final = 3
# Calls whose time trials may cost in addition to their share of it, so that one can begin at all.
FIRST_CREDIT_CALLS: Final = 20.0

Answer = TypeVar("Answer")


class TunedCalls(Generic[Configuration_co]):
    """Runs a function with the configuration of each call. For any thread; one call at a time is a trial.

    Each *shape bucket* (calls with equal shapes) has its own kept configuration and campaign. A request of the campaign
    is some calls in a row with one configuration; their times answer it.

    Args:
        terms: The conditions.
        space: The configurations.
        journal: The journal of this node; None remembers nothing.
        stopped: Returns the reason for which nothing may be tried; empty if it may.
        clock: Seconds.
        accounts: Budget and reports of the process.

    Attributes:
        banned: Reasons by shape and configuration.
        failures: Errors of the campaign, after each of which its shape is tuned no more.
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
        self._terms = terms
        self._space = space
        self._notes = CandidateNotes(journal, space.text, terms.code_version, terms.approved_by)
        self._stopped = stopped
        self._clock = clock or perf_counter
        accounts = accounts or CallAccounts()
        self._budget, self._reports = accounts.budget, accounts.reports
        self._is_closed = False
        # What other nodes have found, by bucket name.
        self._experiences: dict[str, Experience] = {}
        self._lock = threading.Lock()  # held during a trial, in which the program's function runs
        self._new_shape = threading.RLock()  # held while a bucket is made, perhaps by a call within a trial
        self._buckets: dict[object, ShapeBucket] = {}
        # Used by all shapes beyond `MAX_BUCKETS`.
        self._overflow = ShapeBucket(terms.name, None, space.start, 0.0)
        self.banned: dict[tuple[str, int], str] = {}
        self.failures = 0
        self._error: Exception | None = None
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

    def kept(self, shape: object = "") -> Configuration_co:
        """Return the configuration in force for a shape bucket."""
        return self._space.configuration(self._bucket(_key(shape)).kept)

    def learn(self, experience: Experience) -> None:
        """Try nothing that failed on another node; begin with what others have kept. For any thread."""
        if experience.space != self._terms.name and not experience.space.startswith(f"{self._terms.name} "):
            return  # about another space
        self._experiences[experience.space] = experience
        while len(self._experiences) > MAX_SHAPES:
            del self._experiences[next(iter(self._experiences))]

    def close(self, reason: str) -> None:
        """Report searches that are open as interrupted; the program goes on with the kept configurations."""
        self._is_closed = True
        self._notes.no_harm()
        for bucket in list(self._buckets.values()):
            bucket.campaign = None
            self._reports.search_interrupted(bucket.name, self._space.text(bucket.kept), reason)

    def _call(self, function: Callable[..., Result], arguments: tuple[Any, ...], named: dict[str, Any]) -> Result:
        terms, space = self._terms, self._space
        bucket = self._bucket(_key(terms.shape(*arguments, **named)) if terms.shape else "")
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
            items = terms.items(*arguments, **named) if terms.items else 1.0
            call = Call(run, prepare, undo, items)
            if isinstance(bucket.campaign, Confirmation) and not bucket.campaign.is_kept_tried and terms.repeatable:
                return self._try_kept(bucket, bucket.campaign, call)
            return self._trial(bucket, request, call)
        finally:
            self._lock.release()

    def _kept_configuration(self, bucket: ShapeBucket) -> Any:
        """Return the kept configuration, which is made once for many calls."""
        kept, known = bucket.kept, bucket.configuration
        if known is None or known[0] != kept:
            known = bucket.configuration = (kept, self._space.configuration(kept))
        return known[1]

    def _bucket(self, shape: object) -> ShapeBucket:
        found = self._buckets.get(shape)
        if found is not None:
            return found
        with self._new_shape:
            found = self._buckets.get(shape)
            if found is None and len(self._buckets) < MAX_BUCKETS:
                found = self._buckets[shape] = self._new_bucket(shape)
        return found or self._overflow

    def _new_bucket(self, shape: object) -> ShapeBucket:
        name = self._terms.name if shape == "" else f"{self._terms.name} {shape!r}"[:256]
        bucket = ShapeBucket(name, None, self._space.start, self._clock())
        known = self._guarded(lambda: self._notes.kept(name))
        ordinal = self._space.find(known) if known is not None else None
        may_search = len(self._buckets) < MAX_SHAPES and not self._is_closed
        if ordinal is not None and not self._stopped():
            bucket.check.start, bucket.kept = bucket.kept, ordinal
            bucket.campaign = self._guarded(lambda: bucket.check.begin(ordinal)) if may_search else None
        elif may_search:
            self._search(bucket)
        return bucket

    def _search(self, bucket: ShapeBucket) -> None:
        """Begin a search; report that it cannot be made."""
        bucket.campaign = self._guarded(lambda: self._space.campaign(bucket.name))
        if bucket.campaign is None:
            self._reports.search_began(bucket.name, self._space.text(bucket.kept))
            self._interrupt(bucket)

    def _interrupt(self, bucket: ShapeBucket) -> None:
        bucket.campaign = None
        reason = f"the search had an error: {self._error!r}"
        self._reports.search_interrupted(bucket.name, self._space.text(bucket.kept), reason)

    def _request(self, bucket: ShapeBucket) -> CallRequest | None:
        """Return the campaign's request for this call; None to run the kept configuration."""
        if self._stopped() or self._is_closed:
            return None
        campaign = bucket.campaign = bucket.campaign or self._guarded(lambda: bucket.check.begin(bucket.kept))
        if campaign is None:
            return None
        usual = median(bucket.usual) if bucket.usual else float("inf")
        allowed = self._terms.share * (self._clock() - bucket.began) + FIRST_CREDIT_CALLS * usual
        if bucket.lost_seconds > allowed:
            return None
        self._offer_experience(bucket, campaign)
        request = self._guarded(campaign.next)
        if request is None:
            self._end_campaign(bucket, campaign)
        else:
            self._reports.search_began(bucket.name, self._space.text(bucket.kept))
        return request

    def _offer_experience(self, bucket: ShapeBucket, campaign: CallCampaign) -> None:
        """Offer a search what other nodes have kept."""
        experience, offer = self._experiences.get(bucket.name), getattr(campaign, "offer", None)
        if experience is None or offer is None or experience is bucket.offered:
            return
        bucket.offered = experience
        for one in experience.kept:
            ordinal = self._space.find(one.value)
            if ordinal is not None:
                self._guarded(partial(offer, ordinal))

    def _end_campaign(self, bucket: ShapeBucket, campaign: CallCampaign) -> None:
        bucket.campaign, before = None, self._space.text(bucket.kept)
        verdicts, kept = getattr(campaign, "verdicts", ()), self._space.text(campaign.kept)
        self._reports.search_ended(bucket.name, verdicts, self._space.text, kept, before)
        if campaign.kept == bucket.kept:
            return
        start, bucket.kept = bucket.kept, campaign.kept
        if not isinstance(campaign, Confirmation):
            bucket.check.kept(start, self._clock())
            self._notes.end(bucket.name, campaign.kept, Decision.KEPT)
            return
        # The kept configuration was taken back: search again.
        self._notes.forget(bucket.name)
        self._search(bucket)

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
            result = call.run(bucket.check.start)
            self._take_back(bucket, f"{type(error).__name__}: {error}")
            return result
        confirmation.is_kept_tried = True
        if not self._terms.check:
            return result
        kept = self._guarded(lambda: copied(result))
        undo()
        self._add_lost_seconds(bucket, self._clock() - began)
        result = call.run(bucket.check.start)
        if not self._is_correct(kept, result):
            self._take_back(bucket, "its numbers differ from those of the start")
        return result

    def _take_back(self, bucket: ShapeBucket, reason: str) -> None:
        """Ban the kept configuration, put the start in force, and search again."""
        failed, bucket.kept = bucket.kept, bucket.check.start
        bucket.times, bucket.check.due_at = [], inf
        bucket.usual.clear()
        bucket.calls.clear()
        self.banned[bucket.name, failed] = reason
        self._notes.end(bucket.name, failed, Decision.FAILED, reason)
        verdict = Confirmed(failed, Decision.FAILED, reason, None, None)
        text = self._space.text
        self._reports.search_ended(bucket.name, (verdict,), text, text(bucket.kept), text(failed))
        self._search(bucket)

    def _trial(self, bucket: ShapeBucket, request: CallRequest, call: Call[Result]) -> Result:
        # Paths of a candidate's call; each ends with an answer to the campaign and a result for the program:
        #   it is banned already         -> failed;   the kept configuration runs
        #   it raises                    -> failed;   the call is repeated with the kept one (`_repeat`)
        #   the kept one raises as well  -> refused;  the program's error is raised
        #   it is too slow               -> failed;   its result is used
        #   its first numbers are wrong  -> failed;   the result of the kept one is used
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
            result, seconds = self._timed(run, ordinal)
        except Exception as error:
            if not is_candidate:
                raise
            self._add_lost_seconds(bucket, 0.0 if began is None else self._clock() - began)
            return self._repeat(bucket, ordinal, run, undo, error)
        except BaseException:
            self._notes.end(bucket.name, ordinal, None)
            raise
        if is_candidate and seconds > self._terms.limit_seconds:
            limit = f"the limit is {self._terms.limit_seconds:g} s"
            self._charge(bucket, seconds)
            self._ban(bucket, ordinal, f"a call took {seconds:.3g} s; {limit}")
            return result
        checks = self._terms.check and self._terms.repeatable and not isinstance(bucket.campaign, Confirmation)
        if is_first_call and checks:
            candidate = self._guarded(lambda: copied(result))
            undo()
            self._add_lost_seconds(bucket, min(seconds, bucket.usual_seconds))  # the call is repeated
            result = run(bucket.kept)
            if not self._is_correct(candidate, result):
                self._charge(bucket, seconds)
                self._ban(bucket, ordinal, "its numbers differ from those of the kept configuration")
                return result
        self._record(bucket, request, seconds, call.items)
        return result

    def _prepare(self, bucket: ShapeBucket, ordinal: int, call: Call[Result]) -> str:
        """Compile a configuration before it is timed for the first time; that time is lost, and says nothing of it.

        Returns:
            The reason for which the kept one could not be prepared; that of a candidate is raised.
        """
        if ordinal in bucket.prepared:
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
            bucket.lost_seconds += seconds
            if ordinal != bucket.kept:  # the program needs the kept one itself
                self._budget.lose(seconds * 1e9)
        bucket.prepared.add(ordinal)
        return reason

    def _timed(self, run: Callable[[int], Result], ordinal: int) -> tuple[Result, float]:
        wait = self._terms.wait
        if wait:
            wait(None)
        began = self._clock()
        result = run(ordinal)
        if wait:
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

    def _reason_against(self, bucket: ShapeBucket, ordinal: int) -> str:
        known = self.banned.get((bucket.name, ordinal), "")
        experience = self._experiences.get(bucket.name)
        if not known and experience is not None and self._space.text(ordinal) in experience.failed:
            return "it failed on another node"
        return known or self._notes.banned(bucket.name, ordinal)

    def _ban(self, bucket: ShapeBucket, ordinal: int, reason: str) -> None:
        self.banned[bucket.name, ordinal] = reason
        self._notes.end(bucket.name, ordinal, Decision.FAILED, reason)
        self._reports.candidate_failed(bucket.name, self._space.text(ordinal), self._space.text(bucket.kept), reason)
        self._answer_request(bucket, lambda campaign: campaign.failed(reason))

    def _record(self, bucket: ShapeBucket, request: CallRequest, seconds: float, items: float) -> None:
        ordinal = request.ordinal
        if ordinal == bucket.kept:
            if not bucket.usual:
                self._budget.grant(seconds * 1e9)
            bucket.usual.append(seconds)
        else:
            bucket.calls[ordinal] += 1
            if bucket.calls[ordinal] == SURVIVED_CALLS:
                self._notes.no_harm()
            self._charge(bucket, seconds)
        bucket.times.append(seconds / items if items > 0 else seconds)
        if len(bucket.times) >= request.launches:
            times = bucket.times[: request.launches]
            self._answer_request(bucket, lambda campaign: campaign.measured(times))

    def _charge(self, bucket: ShapeBucket, seconds: float) -> None:
        """Charge the time of a call beyond the usual one of the kept configuration."""
        self._add_lost_seconds(bucket, max(0.0, seconds - bucket.usual_seconds))

    def _add_lost_seconds(self, bucket: ShapeBucket, seconds: float) -> None:
        bucket.lost_seconds += seconds
        self._budget.lose(seconds * 1e9)

    def _answer_request(self, bucket: ShapeBucket, answer: Callable[[CallCampaign], None]) -> None:
        bucket.times = []
        campaign = bucket.campaign
        if campaign is not None:
            before, began = self.failures, self._clock()
            self._guarded(lambda: answer(campaign))
            self._add_lost_seconds(bucket, self._clock() - began)  # the time of the search itself
            if self.failures > before:
                self._interrupt(bucket)

    def _is_correct(self, result: Any, reference: Any) -> bool:
        try:
            return self._terms.check is None or bool(self._terms.check(result, reference))
        except Exception:  # noqa: BLE001  numbers that cannot be compared are not proved right
            return False

    def _guarded(self, work: Callable[[], Answer]) -> Answer | None:
        """Run the campaign's code, which must not reach the program."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001  nothing of ours may reach the program
            self.failures += 1
            self._error = error
            return None


def _nothing() -> None:
    """Restore nothing."""


def _key(shape: object) -> object:
    """The key of a shape's bucket: its text where it cannot be hashed, as a list of sizes cannot."""
    try:
        hash(shape)
    except TypeError:
        return repr(shape)
    return shape
