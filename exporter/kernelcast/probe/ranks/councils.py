"""The councils of a process: one for each group and granularity.

`HintReceiver` has a `Councils`; registering a collective tunable or space makes or extends a council.
"""

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.ranks.council import Council, CouncilMember
from kernelcast.probe.ranks.group import group_from
from kernelcast.probe.ranks.searched import SearchMember
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import AnyTunable
from kernelcast.probe.tuned.collective import CollectiveSpace, FunctionSearches


class Councils:
    """Makes the councils as tunables are registered.

    Attributes:
        all: The councils in the order in which they were made, which is the same on all ranks.
        searches: The part of this rank in searches.
    """

    def __init__(self, member: CouncilMember, recorder: Recorder, context: HintContext, searches: SearchMember) -> None:
        self.searches = searches
        self.all: tuple[Council, ...] = ()
        self._member = member
        self._recorder = recorder
        self._context = context
        self._by_group: dict[tuple[int, bool], tuple[object, Council]] = {}

    def open_besides(self, council: object) -> bool:
        """Whether another council has an open trial."""
        return any(one.open for one in self.all if one is not council)

    def absent(self, tunable: AnyTunable) -> str:
        """Return why the ranks do not meet about a tunable; empty if they do."""
        entry = self._by_group.get((id(tunable.terms.group), tunable.terms.granularity == "epoch"))
        return entry[1].absent if entry else ""

    def search_together(self, tunable: AnyTunable, space: CollectiveSpace) -> FunctionSearches:
        """Let the ranks search a space.

        Returns:
            The part of this rank in searches.
        """
        entry = self._by_group.get((id(tunable.terms.group), tunable.terms.granularity == "epoch"))
        if entry and not entry[1].absent:
            entry[1].search(space)
        return self.searches

    def watch(self, tunable: AnyTunable, restored: str | None) -> None:
        """Let the ranks meet about a tunable, if it is collective and its ranks can communicate.

        Raises:
            TunableError: Its group cannot be used.
        """
        terms = tunable.terms
        if terms.scope != "collective" or terms.granularity == "restart" or terms.group is None:
            return
        by_epoch = terms.granularity == "epoch"
        key = (id(terms.group), by_epoch)
        if key not in self._by_group:
            group = group_from(terms.group)
            council = Council(group, self._member, self._recorder, self._context, self.searches, by_epoch=by_epoch)
            self._by_group[key] = (terms.group, council)
            self.all = (*self.all, council)
        council, start = self._by_group[key][1], tunable.kept
        if restored is not None:
            tunable.put(restored)
        council.join(tunable)
        if restored not in (None, start):
            journal, version = self._context.journal, self._context.code_version
            council.recheck(tunable, start, journal.last_kept(tunable.name, version) if journal else None)
