"""Each rank's part in searches of collective spaces, and in checks of kept values: bans, journal and reports.

`Council` calls it when a search begins, runs a new configuration or ends; `HintReceiver`, when a value of this process
alone is checked. A *ban* is a configuration that failed here or on another node, and never runs again.
"""

from collections.abc import Iterable
from typing import Final

from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.ranks.messages import Ended, Work
from kernelcast.probe.ranks.searching import places_of
from kernelcast.probe.tunables import AnyTunable
from kernelcast.probe.tuned.collective import CollectiveSpace
from kernelcast.probe.tuned.confirmation import confirmed
from kernelcast.probe.tuned.notes import CandidateNotes
from kernelcast.probe.tuned.reports import SEARCHED, SearchReports, into
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.requests import Proved
from kernelcast.wire.tuning.experience import Experience

CHECKED: Final = "checked again: it is an hour old, or was kept in an earlier run"


class SearchMember:
    """One rank's part. For the program's thread, but for `learn`, which is for any thread.

    Args:
        notes: Writes the trials of this process to the journal.
        outcomes: Takes the outcomes of searches.
    """

    def __init__(self, notes: CandidateNotes, outcomes: OutcomeQueue) -> None:
        self._notes = notes
        self._reports = SearchReports(into(outcomes))
        self._tunables: dict[str, AnyTunable] = {}
        self._bans: dict[str, tuple[int, ...]] = {}
        self._checked: dict[str, str] = {}

    def add(self, space: CollectiveSpace, tunable: AnyTunable) -> None:
        """Take part in the search of a space."""
        self._bans[space.name] = places_of(
            tuple(config for config in tunable.allowed if self._notes.banned(space.name, config)), tunable.allowed
        )
        self._tunables[space.name] = tunable  # last: from now on `learn` adds to the bans

    def learn(self, experience: Experience) -> None:
        """Ban the configurations that have failed on another node."""
        tunable = self._tunables.get(experience.space)
        if tunable is not None:
            failed = places_of(tuple(experience.failed), tunable.allowed)
            self._bans[experience.space] = tuple(sorted({*self._bans[experience.space], *failed}))

    def bans(self, tunables: Iterable[str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return the values of spaces that must not run, by their places."""
        return tuple((name, self._bans[name]) for name in tunables if self._bans.get(name))

    def search_began(self, work: Work, reason: str = CHECKED) -> None:
        """Report a search, once; in a check, which has this reason, the start is tried."""
        if work.is_check:
            self._checked[work.tunable] = work.old
        self._reports.search_began(work.tunable, work.old, reason if work.is_check else SEARCHED, work.trial)

    def follow(self, work: Work) -> None:
        """Note a configuration before it runs for the first time, and that the one before did no harm."""
        value = next((value for value, _ in work.plan if value != work.old), "")
        if value:
            self._notes.begin(work.tunable, value)

    def search_ended(self, tunable: AnyTunable, ended: Ended, old: str) -> None:
        """Remember and report the end of a search or check."""
        name, kept = tunable.name, tunable.kept
        self._notes.no_harm()
        checked = self._checked.pop(name, None)
        if ended.ratio is None and not ended.candidate_steps:
            self._reports.search_interrupted(name, kept, ended.reason)
            return
        proved = Proved(0, 0, Decision(ended.decision), ended.reason, ended.ratio, ended.interval)
        if checked is None:
            self._notes.end(name, ended.value, proved.decision, ended.reason, ratio=ended.ratio)
            self._reports.search_ended(name, (proved,), lambda _: ended.value, kept, old)
            return
        proved = confirmed(proved)
        if kept != checked:
            self._notes.forget(name)
        elif not ended.outside:
            self._notes.end(name, checked, Decision.KEPT, proved.reason)
        self._reports.search_ended(name, (proved,), lambda _: checked, kept, checked)

    def close(self, reason: str) -> None:
        """Report open searches as interrupted, because the process ends; no configuration is to blame for that."""
        self._notes.no_harm()
        for tunable in self._tunables.values():
            self._reports.search_interrupted(tunable.name, tunable.kept, reason)
        for name, kept in self._checked.items():
            self._reports.search_interrupted(name, kept, reason)
