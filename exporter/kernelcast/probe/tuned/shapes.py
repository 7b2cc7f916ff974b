"""The searches of a space, one for each shape of calls: requests, their answers, and what all that costs.

`TunedCalls` runs a program's function for the requests, `TunedSteps` its steps.
"""

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from random import Random
from time import perf_counter
from typing import Any, Final, Generic, TypeVar

from kernelcast.probe.trial_budget import LaunchCost
from kernelcast.probe.tuned.confirmation import Confirmation, LatePair
from kernelcast.probe.tuned.notes import CandidateNotes
from kernelcast.probe.tuned.rechecks import Recheck
from kernelcast.probe.tuned.terms import (
    CallAccounts,
    CallCampaign,
    CallRequest,
    CallTerms,
    Configuration_co,
    Configurations,
    ShapeBucket,
)
from kernelcast.tuning.campaign import Campaign
from kernelcast.tuning.experiment import Decision, Objective
from kernelcast.tuning.journal import Journal, Measurement
from kernelcast.tuning.requests import Proved
from kernelcast.wire.tuning.experience import Experience

# Shapes of a function that are searched; further ones run the kept configuration.
MAX_SHAPES: Final = 16
# Shapes whose kept configuration is known; further ones run the start and take no memory.
MAX_BUCKETS: Final = 1024
# Characters of a bucket's name in outcomes and in the journal.
MAX_NAME: Final = 256
# Calls after which a candidate is not held responsible for a later end of the process.
SURVIVED_CALLS: Final = 3
# Usual calls that a candidate of a search costs, and seconds in which the search chooses it.
CANDIDATE_COST: Final = 0.25
SUGGESTION_SECONDS: Final = 0.0015

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ShapeProgress:
    """What the search of one shape has come to.

    Attributes:
        name: Space, function and shape.
        configuration: The one in force.
        own: The program's own.
        is_kept: Whether it is another one than the program's own.
        is_open: Whether its search goes on.
        measured, planned: Configurations that an open search has measured, and those that it will; None without one.
    """

    name: str
    configuration: Any
    own: Any
    is_kept: bool
    is_open: bool
    measured: int | None
    planned: int | None


class SearchedShapes(Generic[Configuration_co]):
    """The shape buckets of a space, each with its kept configuration and campaign. For any thread.

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
        self._notes = CandidateNotes(journal, terms.code_version, space.text, terms.approved_by)
        self._stopped = stopped
        self._clock = clock or perf_counter
        accounts = accounts or CallAccounts()
        self._budget, self._reports, self._reverted = accounts.budget, accounts.reports, accounts.reverted
        self._is_closed = self._is_child = False
        self._process = os.getpid()
        # What other nodes have found, by bucket name.
        self._experiences: dict[str, Experience] = {}
        self._new_shape = threading.RLock()  # held while a bucket is made, perhaps by a call within a trial
        self._buckets: dict[object, ShapeBucket] = {}
        # Used by all shapes beyond `MAX_BUCKETS`.
        self._overflow = ShapeBucket(terms.name, None, space.start, self._new_cost())
        self.banned: dict[tuple[str, int], str] = {}
        self.failures = 0
        self._error: Exception | None = None

    def kept(self, shape: object = "") -> Configuration_co:
        """Return the configuration in force for a shape bucket."""
        return self._space.configuration(self._bucket(key_of(shape)).kept)

    def progress(self) -> Iterator[ShapeProgress]:
        """Yield what each shape has come to. For any thread: one that changes while it is read is left out."""
        for bucket in list(self._buckets.values()):
            campaign, measured, planned = bucket.campaign, None, None
            if isinstance(campaign, Campaign):
                planned, _launches = campaign.expected()
                try:
                    measured = min(campaign.evaluations, planned)
                except RuntimeError:  # a set of candidates has changed while it was counted
                    continue
            yield ShapeProgress(
                bucket.name,
                self._space.configuration(bucket.kept),
                self._space.configuration(self._space.start),
                is_kept=bucket.kept != self._space.start,
                is_open=campaign is not None,
                measured=measured,
                planned=planned,
            )

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
            goes_on = "; the search goes on at the next start" if self._resumable(bucket) else ""
            self._interrupt(bucket, reason + goes_on)

    def _bucket(self, shape: object) -> ShapeBucket:
        found = self._buckets.get(shape)
        if found is not None:
            return found
        self._is_forked()
        with self._new_shape:
            found = self._buckets.get(shape)
            if found is None and len(self._buckets) < MAX_BUCKETS:
                found = self._buckets[shape] = self._new_bucket(shape)
        return found or self._overflow

    def _new_bucket(self, shape: object) -> ShapeBucket:
        name = self._terms.name if shape == "" else _bounded(f"{self._terms.name} {shape!r}")
        bucket = ShapeBucket(name, None, self._space.start, self._new_cost())
        ordinal = self._guarded(lambda: self._notes.kept(name, self._space.find))
        may_search = len(self._buckets) < MAX_SHAPES and not self._is_closed
        if ordinal is not None and not self._reverted():
            bucket.start, bucket.kept = bucket.kept, ordinal
            bucket.campaign = self._guarded(lambda: self._check_of(bucket)) if may_search else None
        elif may_search:
            self._search(bucket)
        return bucket

    def _search(self, bucket: ShapeBucket) -> None:
        """Begin a search; report that it cannot be made."""
        bucket.campaign = self._guarded(lambda: self._space.campaign(bucket.name))
        if bucket.campaign is None:
            self._reports.search_began(bucket.name, self._space.text(bucket.kept))
            self._interrupt(bucket)
        elif campaign := self._resumable(bucket):
            before = self.failures
            self._guarded(partial(self._resume, bucket, campaign))
            if self.failures > before:
                self._interrupt(bucket)

    def _resumable(self, bucket: ShapeBucket) -> Campaign | None:
        """Return the open search that the next process is to go on with; None where there is none."""
        campaign, is_noted = bucket.campaign, self._terms.resumes and self._notes.has_journal
        return campaign if is_noted and isinstance(campaign, Campaign) else None

    def _resume(self, bucket: ShapeBucket, campaign: Campaign) -> None:
        """Answer the requests of a search with what earlier processes have measured, as long as they are the same."""
        measurements = self._notes.measurements(bucket.name, campaign.seed)
        for number, measurement in enumerate(measurements):
            ordinal, request = self._space.find(measurement.config), campaign.next()
            while request and request.ordinal != ordinal and (reason := self._reason_against(bucket, request.ordinal)):
                campaign.failed(reason)
                request = campaign.next()
            if request is None or (request.ordinal, request.launches) != (ordinal, len(measurement.times)):
                self._notes.searched(bucket.name, campaign.seed)
                for known in measurements[:number]:
                    self._notes.measured(bucket.name, campaign.seed, known)
                return
            campaign.paced(measurement.launch_seconds)
            campaign.measured(measurement.times)
            if request.ordinal == bucket.kept:
                bucket.cost.launch(measurement.launch_seconds, candidate=False)
            else:
                bucket.calls[request.ordinal] += len(measurement.times)

    def _check_of(self, bucket: ShapeBucket) -> Confirmation:
        """Return the campaign that checks the kept configuration, of two: this one and its start."""
        rules = self._terms.experiment
        if bucket.check.is_for_pair(self._clock()):
            bucket.check.due_at = inf
            return LatePair(bucket.start, bucket.kept, bucket.check.start_level, rules.settle)
        bucket.check = Recheck()
        return Confirmation(bucket.start, bucket.kept, Random().getrandbits(32), rules)  # noqa: S311  fair, not secret

    def _interrupt(self, bucket: ShapeBucket, reason: str = "") -> None:
        """End a search without a result, because of an error unless there is another reason; the kept value stays."""
        if not reason:
            self._forget_measurements(bucket)
        bucket.campaign, bucket.times = None, []
        why = reason or f"the search had an error: {self._error!r}"
        self._reports.search_interrupted(bucket.name, self._space.text(bucket.kept), why)

    def _forget_measurements(self, bucket: ShapeBucket) -> None:
        """Note that a search has ended, so that the next one begins anew."""
        if campaign := self._resumable(bucket):
            self._notes.searched(bucket.name, campaign.seed)

    def _revert(self, bucket: ShapeBucket) -> int:
        """Put the start in force in place of the kept configuration; returns the number of that."""
        kept, bucket.kept = bucket.kept, bucket.start
        bucket.times, bucket.check = [], Recheck()
        return kept

    def _request(self, bucket: ShapeBucket) -> CallRequest | None:
        """Return the campaign's request for this call; None to run the kept configuration."""
        if self._is_forked() or self._stopped() or self._is_closed:
            return None
        if bucket.campaign is None and not bucket.check.is_due(self._clock):
            return None  # another thread has ended the campaign since this one saw it
        campaign = bucket.campaign = bucket.campaign or self._guarded(lambda: self._check_of(bucket))
        if campaign is None:
            return None
        self._offer_experience(bucket, campaign)
        request = self._guarded(campaign.next)
        if request is not None and request.may_wait and bucket.cost.is_spent:
            return None
        if request is None:
            self._end_campaign(bucket, campaign)
        elif not isinstance(campaign, LatePair) and (bucket.cost.is_known or not hasattr(campaign, "expected")):
            expected = self._expected_seconds(bucket, campaign)
            self._reports.search_began(bucket.name, self._space.text(bucket.kept), expected_seconds=expected)
        return request

    def _expected_seconds(self, bucket: ShapeBucket, campaign: CallCampaign) -> float:
        """Return the time until a verdict, roughly: that of its calls, or that in which they may cost what they cost.

        A candidate takes a quarter longer than the kept configuration and is checked once, and the search computes.
        """
        expected: Callable[[], tuple[int, int]] | None = getattr(campaign, "expected", None)
        if bucket.is_announced or expected is None:
            return 0.0
        bucket.is_announced = True
        configurations, calls = expected()
        usual, checked = bucket.cost.usual_seconds, 1.0 if self._terms.check else 0.0
        cost = configurations * ((CANDIDATE_COST + checked) * usual + SUGGESTION_SECONDS)
        share = bucket.cost.share
        return max(calls * usual, (cost - bucket.cost.first_seconds) / share if share else 0.0)

    def _new_cost(self) -> LaunchCost:
        """Return the account of a shape."""
        return LaunchCost(self._budget, self._terms.share, lambda: round(self._clock() * 1e9))

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
        self._forget_measurements(bucket)
        bucket.campaign, before = None, self._space.text(bucket.kept)
        if isinstance(campaign, LatePair):
            reason = bucket.check.paired(campaign, self._clock(), bucket.cost.usual_seconds)
            if reason:
                self._reports.search_began(bucket.name, before, "checked again after long stays")
                self._take_back(bucket, reason, Decision.ROLLED_BACK)
            return
        verdicts, kept = getattr(campaign, "verdicts", ()), self._space.text(campaign.kept)
        self._reports.search_ended(bucket.name, verdicts, self._space.text, kept, before)
        if campaign.kept == bucket.kept:
            return
        if isinstance(campaign, Confirmation):  # taken back: search again
            self._revert(bucket)
            self._notes.forget(bucket.name)
            self._search(bucket)
            return
        bucket.start, bucket.kept, now = bucket.kept, campaign.kept, self._clock()
        bucket.check, rules = Recheck.of(now), self._terms.experiment
        if rules.look_launches and rules.objective is Objective.MEAN:
            bucket.check.begin_stays(now, bucket.cost.usual_seconds)
        self._notes.end(bucket.name, campaign.kept, Decision.KEPT)

    def _is_forked(self) -> bool:
        """Whether this is a forked child. It tries nothing: the search, its budget and its reports are the parent's.

        Asked before anything that waits for a lock, because a thread of the parent may have held it at the fork.
        """
        if not self._is_child and os.getpid() != self._process:
            self._is_child = self._is_closed = True
            self._new_shape = threading.RLock()
            for bucket in list(self._buckets.values()):
                bucket.campaign, bucket.check = None, Recheck()
        return self._is_child

    def _take_back(self, bucket: ShapeBucket, reason: str, decision: Decision = Decision.FAILED) -> None:
        """Ban the kept configuration, put the start in force, and search again."""
        if self._is_forked():
            return
        failed = self._revert(bucket)
        bucket.cost.begin_again()
        bucket.calls.clear()
        self.banned[bucket.name, failed] = reason
        self._notes.end(bucket.name, failed, decision, reason)
        if decision is not Decision.FAILED:
            self._notes.forget(bucket.name)
        verdict = Proved(failed, bucket.kept, decision, reason, None, None)
        text = self._space.text
        self._reports.search_ended(bucket.name, (verdict,), text, text(bucket.kept), text(failed))
        self._search(bucket)

    def _end_unchecked(self, bucket: ShapeBucket) -> None:
        """End the search, because results cannot be compared; a kept configuration on trial gives way to the start."""
        if self._is_forked():
            return
        if isinstance(bucket.campaign, Confirmation):
            self._revert(bucket)
        self._interrupt(bucket)

    def _forget_kept(self, bucket: ShapeBucket, reason: str) -> None:
        """Put the start in force and search again; the program's next start begins with the start, too.

        The configuration is banned in this process only, because the program may be to blame.
        """
        if self._is_forked():
            return
        self.banned[bucket.name, self._revert(bucket)] = reason
        self._notes.forget(bucket.name)
        self._interrupt(bucket, "the kept configuration failed")
        self._search(bucket)

    def _reason_against(self, bucket: ShapeBucket, ordinal: int) -> str:
        known = self.banned.get((bucket.name, ordinal), "")
        experience = self._experiences.get(bucket.name)
        if not known and experience is not None and self._space.text(ordinal) in experience.failed:
            return "it failed on another node"
        return known or self._notes.banned(bucket.name, ordinal)

    def _ban(self, bucket: ShapeBucket, ordinal: int, reason: str) -> None:
        if self._is_forked():
            return
        self.banned[bucket.name, ordinal] = reason
        self._notes.end(bucket.name, ordinal, Decision.FAILED, reason)
        self._reports.candidate_failed(bucket.name, self._space.text(ordinal), self._space.text(bucket.kept), reason)
        self._answer_request(bucket, lambda campaign: campaign.failed(reason))

    def _record(self, bucket: ShapeBucket, request: CallRequest, seconds: float, items: float) -> None:
        if self._is_forked():
            return
        ordinal = request.ordinal
        if ordinal == bucket.kept:
            bucket.cost.launch(seconds, candidate=False)
            paced: Callable[[float], None] | None = getattr(bucket.campaign, "paced", None)
            if paced is not None:
                paced(bucket.cost.usual_seconds)
        else:
            bucket.calls[ordinal] += 1
            if bucket.calls[ordinal] == SURVIVED_CALLS:
                self._notes.no_harm()
            self._charge(bucket, seconds)
        bucket.times.append(seconds / items if items > 0 else seconds)
        if len(bucket.times) >= request.launches:
            times = bucket.times[: request.launches]
            if resumable := self._resumable(bucket):
                measurement = Measurement(self._space.text(ordinal), tuple(times), bucket.cost.usual_seconds)
                self._notes.measured(bucket.name, resumable.seed, measurement)
            self._answer_request(bucket, lambda campaign: campaign.measured(times))

    def _charge(self, bucket: ShapeBucket, seconds: float) -> None:
        """Charge the time of a call beyond the usual one of the kept configuration."""
        self._add_lost_seconds(bucket, max(0.0, seconds - bucket.cost.usual_seconds))

    def _add_lost_seconds(self, bucket: ShapeBucket, seconds: float) -> None:
        if self._is_forked():
            return
        bucket.cost.lose(seconds)

    def _answer_request(self, bucket: ShapeBucket, answer: Callable[[CallCampaign], None]) -> None:
        if self._is_forked():
            return
        bucket.times = []
        campaign = bucket.campaign
        if campaign is not None:
            before, began = self.failures, self._clock()
            self._guarded(lambda: answer(campaign))
            self._add_lost_seconds(bucket, self._clock() - began)  # the time of the search itself
            if self.failures > before:
                self._interrupt(bucket)

    def _guarded(self, work: Callable[[], Answer]) -> Answer | None:
        """Run the campaign's code, which must not reach the program."""
        try:
            return work()
        except Exception as error:  # noqa: BLE001  nothing of ours may reach the program
            self.failures += 1
            self._error = error
            return None


def _bounded(name: str) -> str:
    """Return the name of a bucket; a long one is cut, and ends with a hash, so that no two buckets have one name."""
    if len(name) <= MAX_NAME:
        return name
    return f"{name[: MAX_NAME - 17]} {hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"


def key_of(shape: object) -> object:
    """The key of a shape's bucket: its text where it cannot be hashed, as a list of sizes cannot."""
    try:
        hash(shape)
    except TypeError:
        return repr(shape)
    return shape
