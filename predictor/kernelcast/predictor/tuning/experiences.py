"""Collects the results of searches of spaces on all nodes; `cycle_loop` publishes those that changed after each cycle.

A *space* is a set of configurations of tunables that a program searches by itself. Nodes use each other's results.
"""

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from kernelcast.tuning.experiment import Decision
from kernelcast.wire.events import Outcome, OutcomeState
from kernelcast.wire.tuning.experience import (
    MAX_FAILED,
    MAX_FAILED_BYTES,
    MAX_KEPT,
    PROVED_NODES,
    Experience,
    KeptElsewhere,
)

MAX_SPACES: Final = 2_000
"""Spaces whose results are kept; those without news for the longest time are forgotten first."""
MAX_NODES: Final = 1_000
"""Nodes of one space whose kept configurations are remembered; above it the oldest are forgotten."""

_Space = tuple[str, str, str, str]
"""Program, space, device model, code version."""


@dataclass(slots=True)
class _Results:
    """Results of the searches of one space: failed configurations, and the kept one of each node that searched.

    Attributes:
        known: Whether there was ever something to write; it may be on Kafka, also from before a restart.
    """

    known: bool = False
    failed: OrderedDict[str, None] = field(default_factory=OrderedDict)
    kept: OrderedDict[str, str] = field(default_factory=OrderedDict)

    def learn(self, outcome: Outcome) -> None:
        if outcome.decision == Decision.FAILED.value:
            self.failed[outcome.candidate] = None
            while len(self.failed) > MAX_FAILED or sum(map(_json_bytes, self.failed)) > MAX_FAILED_BYTES:
                self.failed.popitem(last=False)
        elif outcome.state is OutcomeState.KEPT:
            self.kept[outcome.hostname] = outcome.candidate or outcome.value
        elif outcome.state is OutcomeState.APPLIED:
            self.kept.setdefault(outcome.hostname, "")
        elif outcome.decision == Decision.ROLLED_BACK.value and self.kept.get(outcome.hostname) == outcome.candidate:
            self.kept[outcome.hostname] = ""  # it was checked again, and taken back
        while len(self.kept) > MAX_NODES:
            self.kept.popitem(last=False)
        self.known |= bool(self.failed) or any(self.kept.values())

    def found(self) -> tuple[KeptElsewhere, ...]:
        nodes: dict[str, list[str]] = {}
        for node, value in self.kept.items():
            if value and value not in self.failed:
                nodes.setdefault(value, []).append(node)
        ranked = sorted(nodes.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_KEPT]
        return tuple(KeptElsewhere(value, len(by), self._second(by)) for value, by in ranked)

    def _second(self, proved_by: list[str]) -> str:
        """Return the node that is to prove a configuration next: one that searches the space, too."""
        if len(proved_by) >= PROVED_NODES:
            return ""
        return min((node for node in self.kept if node not in proved_by), default="")


class Experiences:
    """Results by space; bounded, the spaces without news for the longest time are forgotten first."""

    def __init__(self) -> None:
        self._spaces: OrderedDict[_Space, _Results] = OrderedDict()
        self._written: dict[_Space, Experience] = {}

    def learn(self, outcome: Outcome) -> None:
        """Record an outcome of a search."""
        key = (outcome.program, outcome.tunable, outcome.device_model, outcome.code_version)
        self._spaces.setdefault(key, _Results()).learn(outcome)
        self._spaces.move_to_end(key)
        while len(self._spaces) > MAX_SPACES:
            forgotten, _ = self._spaces.popitem(last=False)
            self._written.pop(forgotten, None)

    def take_changed(self) -> list[Experience]:
        """Return the results that have changed since the last call."""
        changed = []
        for key, results in self._spaces.items():
            now = Experience(*key, tuple(sorted(results.failed)), results.found())
            if results.known and self._written.get(key) != now:
                self._written[key] = now
                changed.append(now)
        return changed


def _json_bytes(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode())
