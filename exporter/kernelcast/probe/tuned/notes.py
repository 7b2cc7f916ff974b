"""Writes the course of a search to the journal: before a candidate runs, once it has done no harm, and at its end.

`TunedCalls` calls it. The journal is a file of the node: after a crash the next run of the program finds the candidate
that was running, and bans it.
"""

from collections.abc import Callable

from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal


class CandidateNotes:
    """Writes and reads the journal of one search; without a journal it remembers nothing.

    A candidate is held responsible if the process ends before another one runs, before it has run a few times, and
    before the program ends by itself.

    Args:
        journal: The journal of this node.
        text: Returns a configuration as text.
        code_version: Version of the program.
        approved_by: The person who approved the search; its start is the kept configuration then.
    """

    def __init__(
        self, journal: Journal | None, text: Callable[[int], str], code_version: str, approved_by: str = ""
    ) -> None:
        self._journal = journal
        self._text = text
        self._code_version = code_version
        self._approved_by = approved_by
        self._responsible: tuple[str, int] | None = None

    def kept(self, space: str, find: Callable[[str], int | None]) -> int | None:
        """Return the configuration that was kept before; None if there is none that `find` knows by its text."""
        if self._journal is None or self._approved_by:
            return None
        known = self._journal.kept(
            space, self._code_version, lambda one: "" if find(one.config) is not None else "the space has it not"
        )
        return find(known) if known is not None else None

    def forget(self, space: str) -> None:
        """Note that the kept configuration was taken back."""
        if self._journal:
            self._journal.forget(space, self._code_version)

    def banned(self, space: str, ordinal: int) -> str:
        """Return the reason for which a configuration is never tried again; empty if it may be."""
        return self._journal.banned(space, self._text(ordinal), self._code_version) if self._journal else ""

    def begin(self, space: str, ordinal: int) -> None:
        """Note that a candidate is about to run for the first time; the one before has done no harm."""
        self.no_harm()
        self._responsible = (space, ordinal)
        if self._journal:
            self._journal.begin(space, self._text(ordinal), self._code_version)

    def no_harm(self) -> None:
        """Note that the candidate that ran last has done no harm."""
        responsible, self._responsible = self._responsible, None
        if responsible is not None and self._journal:
            self._journal.survived(responsible[0], self._text(responsible[1]), self._code_version)

    def end(self, space: str, ordinal: int, decision: Decision | None, reason: str = "") -> None:
        """Note the decision about a candidate; None if it was interrupted."""
        if self._responsible == (space, ordinal):
            self._responsible = None
        if self._journal:
            self._journal.end(
                space, self._text(ordinal), decision, self._code_version, reason=reason, approved_by=self._approved_by
            )
