"""Packets that wait for one process: hints and their withdrawals, answers about searches, findings, confirmations.

`ProbeRegistry` decides which process gets what and queues it here; the server's thread sends it.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from kernelcast.wire.errors import FrameError
from kernelcast.wire.events import Hint, to_event, withdrawal
from kernelcast.wire.frames import HintFrame, OutcomesConfirmed, Reception, StacksRequest, encode
from kernelcast.wire.tuning.approvals import Approval, ApprovalState, approval_event
from kernelcast.wire.tuning.experience import Experience, experience_event

SOURCE: Final = "/kernelcast/exporter"


class ProcessOutbox:
    """A bounded queue of packets. Not thread-safe; the server calls it under its lock.

    Args:
        limit: Number of packets beyond which only withdrawals are queued.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._packets: deque[bytes] = deque()
        self._withdrawals: set[bytes] = set()
        self._delivered: dict[str, str] = {}
        self._answers: dict[str, Approval] = {}

    @property
    def next_packet(self) -> bytes | None:
        """Return the next packet to send; None if there is none."""
        return self._packets[0] if self._packets else None

    def packet_sent(self) -> None:
        """Note that the packet was sent."""
        self._withdrawals.discard(self._packets.popleft())

    @property
    def delivered(self) -> list[str]:
        """Return the keys of the hints that the process has got, or that wait for it."""
        return list(self._delivered)

    def has(self, hint: Hint) -> bool:
        """Whether the process has got this hint, or it waits."""
        return self._delivered.get(hint.key) == hint.hint_id

    def hint(self, hint: Hint, now_ns: int) -> bool:
        """Queue a hint; False if too many packets wait already, or it is too long for a frame."""
        if self._is_full or not self._queue(to_event(hint, source=SOURCE, time_ns=now_ns)):
            return False
        self._delivered[hint.key] = hint.hint_id
        return True

    def withdraw(self, key: str, now_ns: int) -> bool:
        """Queue the withdrawal of a hint that the process has, or that waits for it; False if it has not."""
        if self._delivered.pop(key, None) is None or not self._queue(withdrawal(key, source=SOURCE, time_ns=now_ns)):
            return False
        self._withdrawals.add(self._packets[-1])
        return True

    def withdraw_hint(self, hint_id: str, now_ns: int) -> bool:
        """Queue the withdrawal of a hint with this id; False if the process has not got it."""
        key = next((key for key, delivered in self._delivered.items() if delivered == hint_id), None)
        return key is not None and self.withdraw(key, now_ns)

    def answer(self, approval: Approval) -> bool:
        """Queue a person's answer about a search.

        An approval is not queued while too many packets wait; a withdrawal is.

        Returns:
            False if it was queued before, is not queued, or is too long for a frame.
        """
        full = approval.state is ApprovalState.APPROVED and self._is_full
        if full or self._answers.get(approval.hint_id) == approval:
            return False
        if not self._queue(approval_event(approval, source=SOURCE)):
            return False
        self._answers[approval.hint_id] = approval
        return True

    def findings(self, experience: Experience, now_ns: int) -> bool:
        """Queue results of searches; False if too many packets wait already, or they are too long for a frame."""
        return not self._is_full and self._queue(experience_event(experience, source=SOURCE, time_ns=now_ns))

    def confirmation(self, event_ids: Sequence[str]) -> bool:
        """Queue the confirmation of outcomes; False if too many packets wait already."""
        if self._is_full:
            return False
        self._packets.extend(encode(OutcomesConfirmed(tuple(event_ids))))
        return True

    def reception(self, page: str) -> None:
        """Queue the answer that the process is accepted; with the URL of the exporter's page."""
        self._packets.extend(encode(Reception(page)))

    def stacks(self) -> None:
        """Ask the process for the stacks of its threads."""
        self._packets.extend(encode(StacksRequest()))

    def clear(self) -> None:
        """Forget all but withdrawals that were not sent: the process has reconnected, and hints are sent again."""
        self._packets = deque(packet for packet in self._packets if packet in self._withdrawals)
        self._delivered.clear()
        self._answers.clear()

    @property
    def _is_full(self) -> bool:
        return len(self._packets) >= self._limit

    def _queue(self, event: dict[str, Any]) -> bool:
        """Queue an event; False if it is too long for a frame: it may be longer than the one from Kafka."""
        try:
            self._packets.extend(encode(HintFrame(event)))
        except FrameError:
            return False
        return True
