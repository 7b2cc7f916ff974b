"""Writes the course of every trial to the journal: before a candidate runs, once it has done no harm, and at its end.

Hints, searches and checks of kept values write through it. The journal is a file of the node: after a crash the next
run of the program finds the candidate that was running, and bans it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal, KeptConfiguration, Measurement


class CandidateNotes:
    """Writes and reads the journal of trials that run one after another; without a journal it remembers nothing.

    A candidate is held responsible if the process ends before another one runs, before it has run a few times, and
    before the program ends by itself.

    Args:
        journal: The journal of this node.
        code_version: Version of the program.
        text: Returns a candidate as text.
        approved_by: The person who approved the search; its start is the kept configuration then.
    """

    def __init__(
        self, journal: Journal | None, code_version: str, text: Callable[[Any], str] = str, approved_by: str = ""
    ) -> None:
        self._journal = journal
        self._text = text
        self._code_version = code_version
        self._approved_by = approved_by
        self._running: tuple[str, Any] | None = None
        self._is_responsible = False

    @property
    def has_journal(self) -> bool:
        """Whether the next process will know what this one notes."""
        return self._journal is not None

    def kept(self, space: str, find: Callable[[str], int | None]) -> int | None:
        """Return the configuration that was kept before; None if there is none that `find` knows by its text."""
        if self._journal is None or self._approved_by:
            return None

        def unfit(kept: KeptConfiguration) -> str:
            return "" if find(kept.config) is not None else "the space does not have it"

        config = self._journal.kept(space, self._code_version, unfit)
        return find(config) if config is not None else None

    def banned(self, space: str, candidate: Any) -> str:
        """Return the reason for which a candidate is never tried again; empty if it may be."""
        return self._journal.banned(space, self._text(candidate), self._code_version) if self._journal else ""

    def begin(self, space: str, candidate: Any) -> None:
        """Note that a candidate is about to run, unless it ran last; the one before has done no harm."""
        if self._running == (space, candidate):
            return
        self.no_harm()
        self._running, self._is_responsible = (space, candidate), True
        if self._journal:
            self._journal.begin(space, self._text(candidate), self._code_version)

    def no_harm(self) -> None:
        """Note that the candidate that ran last has done no harm."""
        if self._running is not None and self._is_responsible and self._journal:
            self._journal.survived(self._running[0], self._text(self._running[1]), self._code_version)
        self._is_responsible = False

    def end(self, space: str, candidate: Any, decision: Decision | None, reason: str = "", **facts: Any) -> None:
        """Note the decision about a candidate, None if it was interrupted; `facts` as of `Journal.end`."""
        if self._running == (space, candidate):
            self._running = None
        if self._journal:
            facts = {"approved_by": self._approved_by, **facts}
            self._journal.end(space, self._text(candidate), decision, self._code_version, reason=reason, **facts)

    def measured(self, space: str, seed: int, measurement: Measurement) -> None:
        """Note what the search with this seed has measured."""
        if self._journal:
            self._journal.measured(space, self._code_version, seed, measurement)

    def measurements(self, space: str, seed: int) -> Sequence[Measurement]:
        """Return what the search with this seed has measured in earlier processes."""
        return self._journal.measurements(space, self._code_version, seed) if self._journal else ()

    def searched(self, space: str, seed: int) -> None:
        """Note that the search with this seed has ended."""
        if self._journal:
            self._journal.searched(space, self._code_version, seed)

    def forget(self, space: str) -> None:
        """Note that the kept configuration was taken back."""
        if self._journal:
            self._journal.forget(space, self._code_version)
