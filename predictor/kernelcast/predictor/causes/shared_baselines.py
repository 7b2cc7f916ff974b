"""Keeps the baselines of kernels that the nodes of a fleet share, and chooses the records to be written.

`FleetComparison` reads them and offers parts of its own nodes; `state.baselines_topic` reads and writes the topic. A
record is about one kernel, configuration and GPU model, and has a *part* of each node. The order of arrival does not
matter: merging takes the newest part of each node. Two predictors may replace each other's record; each sees that parts
which it knows are missing on the topic, and writes them again.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

from kernelcast.predictor.causes.fleet import changed
from kernelcast.wire.baselines import MAX_NODES, MAX_TEXT_CHARACTERS, KernelBaseline, NodeBaseline, merge

DAY_NS: Final = 86_400 * 1_000_000_000
HOUR_NS: Final = 3_600 * 1_000_000_000
MAX_AGE_NS: Final = 7 * DAY_NS
"""Parts that are older do not count: drivers and images change within weeks, without a version that a part carries.
A node that runs a kernel renews its part daily, so seven days without one outlast a weekend or a repair."""
RENEW_NS: Final = DAY_NS
"""An unchanged part is written again after this time."""
CHANGE_NS: Final = HOUR_NS
"""A part of a node that has changed replaces the one before after this time at the earliest."""
AHEAD_NS: Final = HOUR_NS
"""Parts further in the future are refused: they would count as the newest for as long."""
MAX_BASELINES: Final = 5_000
"""Records that are kept; further ones are refused and counted."""
MAX_NAME_BYTES: Final = 320
"""Host, program and version of a part together: 64 parts fit into an event."""
PER_MINUTE: Final = 120
"""Records written in a minute at most; the others wait for the next one."""
_MINUTE_NS: Final = 60 * 1_000_000_000


class RefusedBaseline(StrEnum):
    """Reasons for refusing a record or a part of a node."""

    UNUSABLE = "unusable"
    OTHER_KEY = "other_key"
    FUTURE = "future"
    FULL = "full"
    TOO_LONG = "too_long"


class SharedBaselines:
    """All shared baselines; safe for several threads, bounded.

    Attributes:
        refused: Records and parts that were refused so far, by reason.
        parts_shared: Parts of nodes that this predictor has contributed so far.
        caught_up: Whether the topic has been read; before, nothing is compared and nothing is written.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, KernelBaseline] = {}
        self._written: dict[str, KernelBaseline] = {}
        self._due: dict[str, None] = {}
        self._allowance = float(PER_MINUTE)
        self._taken_ns = self._expired_ns = 0
        self.refused: Counter[RefusedBaseline] = Counter()
        self.parts_shared = 0
        self.caught_up = False

    def __len__(self) -> int:
        return len(self._known)

    def known(self, keys: Iterable[str]) -> Mapping[str, KernelBaseline]:
        """The baselines of these keys, those that are known."""
        with self._lock:
            return {key: self._known[key] for key in dict.fromkeys(keys) if key in self._known}

    def learn(self, key: str, baseline: KernelBaseline, *, now_ns: int) -> None:
        """Record a message of the topic.

        Args:
            key: Key of the record.
            baseline: Its value.
            now_ns: Time of this machine.
        """
        parts = tuple(part for part in baseline.nodes if part.time_ns <= now_ns + AHEAD_NS)
        with self._lock:
            if baseline.key != key:
                self.refused[RefusedBaseline.OTHER_KEY] += 1
                return
            self.refused[RefusedBaseline.FUTURE] += len(baseline.nodes) - len(parts)
            usable = merge(replace(baseline, nodes=()), replace(baseline, nodes=parts))
            if not self._add(key, usable):
                return
            self._written[key] = usable
            if self._known[key] != usable:
                self._due[key] = None

    def withdrawn(self, key: str) -> None:
        """Record that the topic has no baseline of a key any more; parts that still count are written again."""
        with self._lock:
            self._written.pop(key, None)
            if key in self._known:
                self._due[key] = None

    def offer(self, kernel: str, configuration: str, device_model: str, part: NodeBaseline) -> bool:
        """Take a part of a node that this predictor sees; returns whether it is new, or changed by more than noise."""
        offered = KernelBaseline(kernel, configuration, device_model, (part,))
        with self._lock:
            if _is_too_long(offered):
                self.refused[RefusedBaseline.TOO_LONG] += 1
                return False
            before = self._known.get(offered.key)
            if not (_is_news(before, part) and self._add(offered.key, offered)):
                return False
            self._due[offered.key] = None
            self.parts_shared += 1
            return True

    def take_due(self, now_ns: int) -> list[tuple[str, KernelBaseline | None]]:
        """Take the records that are to be written now, by key: None withdraws one that no node has renewed.

        Nothing before the topic has been read, and a bounded number per minute.

        Args:
            now_ns: Time of this machine.
        """
        if not self.caught_up:
            return []
        with self._lock:
            self._refill(now_ns)
            self._expire(now_ns)
            due = []
            for key in list(self._due):
                if self._allowance < 1:
                    break
                del self._due[key]
                known = self._counting(self._known.get(key), now_ns)
                if self._is_missing(key, known, now_ns):
                    self._allowance -= 1
                    due.append((key, known))
                self._keep(key, known)
            return due

    def undelivered(self, key: str) -> None:
        """Record that Kafka did not take a record; it is written again."""
        with self._lock:
            self._written.pop(key, None)
            if key in self._known:
                self._due[key] = None

    def _add(self, key: str, baseline: KernelBaseline) -> bool:
        """Merge parts into a known or new baseline; False where there are too many baselines."""
        before = self._known.get(key)
        if before is None and len(self._known) >= MAX_BASELINES:
            self.refused[RefusedBaseline.FULL] += 1
            return False
        self._known[key] = merge(before or replace(baseline, nodes=()), baseline)
        return True

    def _is_missing(self, key: str, known: KernelBaseline | None, now_ns: int) -> bool:
        """Whether the topic has another record of a key than the one that is known."""
        written = self._written.get(key)
        if known is None or written is None:
            return (known is None) != (written is None)
        return self._counting(written, now_ns) != known

    def _keep(self, key: str, known: KernelBaseline | None) -> None:
        if known is None:
            self._known.pop(key, None)
            self._written.pop(key, None)
        else:
            self._known[key] = self._written[key] = known

    @staticmethod
    def _counting(baseline: KernelBaseline | None, now_ns: int) -> KernelBaseline | None:
        """A baseline without the parts that are too old or too far ahead; None where no part is left."""
        if baseline is None:
            return None
        nodes = tuple(part for part in baseline.nodes if now_ns - MAX_AGE_NS <= part.time_ns <= now_ns + AHEAD_NS)
        return replace(baseline, nodes=nodes) if nodes else None

    def _refill(self, now_ns: int) -> None:
        passed_ns = max(now_ns - self._taken_ns, 0)
        self._allowance = min(PER_MINUTE, self._allowance + PER_MINUTE * passed_ns / _MINUTE_NS)
        self._taken_ns = now_ns

    def _expire(self, now_ns: int) -> None:
        """Once an hour, mark the baselines without a part that counts."""
        if now_ns - self._expired_ns < HOUR_NS:
            return
        self._expired_ns = now_ns
        self._due |= {key: None for key, baseline in self._known.items() if self._counting(baseline, now_ns) is None}


def _is_too_long(baseline: KernelBaseline) -> bool:
    names = "".join(part.hostname + part.program + part.code_version for part in baseline.nodes)
    longest = max(map(len, (baseline.kernel, baseline.configuration, baseline.device_model)))
    return len(names.encode()) > MAX_NAME_BYTES or longest > MAX_TEXT_CHARACTERS


def _is_news(before: KernelBaseline | None, part: NodeBaseline) -> bool:
    """Whether a part is to be shared, given the known parts of its kernel."""
    own = (
        None
        if before is None
        else next((known_part for known_part in before.nodes if known_part.hostname == part.hostname), None)
    )
    if own is not None:
        waits_ns = CHANGE_NS if changed(own, part) else RENEW_NS
        return part.time_ns - own.time_ns >= waits_ns
    if before is None or len(before.nodes) < MAX_NODES:
        return True
    # As many nodes as a record takes; another one replaces the one that was not renewed for the longest time.
    return part.time_ns - min(known_part.time_ns for known_part in before.nodes) >= RENEW_NS
