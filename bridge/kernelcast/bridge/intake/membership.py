"""Decides whether this member of a consumer group may still expose its partitions after a pause without a poll.

A process that was suspended (SIGSTOP, a frozen container, a suspended machine) for longer than the group's session has
lost its partitions to other members. Its consumer learns that at its next poll or later, and a scrape can be answered
before. So after such a pause series are hidden until Kafka has confirmed the membership.
"""

from typing import Final

from kernelcast.bridge.clock import Clock

SESSION_SECONDS: Final = 10.0
"""The session time-out where none is given; a service gives that of its consumer."""
SHARE_OF_SESSION: Final = 0.9
"""The rest is a margin for clocks that differ a little, and for a scrape that is being answered."""
CONFIRMATION_SECONDS: Final = 1.0
"""Interval between two attempts."""


class GroupMembership:
    """Records polls. The consuming thread writes; threads that answer scrapes read `doubtful`.

    The first poll after a pause detects it, or a scrape before that. The membership is doubtful from then until the
    group has assigned or revoked partitions, or has accepted a commit: it refuses commits of a removed member.
    """

    def __init__(self, clock: Clock, *, grouped: bool, session_seconds: float = SESSION_SECONDS) -> None:
        """Start without a poll; before the first one nothing is doubtful.

        Args:
            clock: Its monotonic time continues while the process is suspended.
            grouped: Whether there is a group. Without one, no other member takes partitions, so nothing is doubtful.
            session_seconds: The group's session time-out.
        """
        self._clock, self._grouped = clock, grouped
        self._session_seconds, self._max_seconds = session_seconds, session_seconds * SHARE_OF_SESSION
        self._polled_at_seconds: float | None = None
        self._confirmation_due = 0.0
        self._unconfirmed = False

    @property
    def doubtful(self) -> bool:
        """Whether the group may have assigned our partitions to other members without our knowledge."""
        # In this order: a poll sets `_unconfirmed` before it forgets the pause.
        return self._paused(self._clock.monotonic()) or self._unconfirmed

    @property
    def confirmation_due(self) -> bool:
        """Whether to query Kafka now; True once per `CONFIRMATION_SECONDS`."""
        now_seconds = self._clock.monotonic()
        if not self._unconfirmed or now_seconds < self._confirmation_due:
            return False
        self._confirmation_due = now_seconds + CONFIRMATION_SECONDS
        return True

    def readiness(self) -> tuple[bool, str]:
        """Return whether the membership is certain; if not, the reason."""
        if not self.doubtful:
            return True, ""
        seconds = self._clock.monotonic() - (self._polled_at_seconds or 0.0)
        if seconds > self._max_seconds:
            return False, (
                f"Kafka has not been polled for {seconds:.0f} s, and the group gives partitions away after "
                f"{self._session_seconds:g} s; no series are exposed until it has confirmed the membership"
            )
        return False, "the process was paused; no series are exposed until the group has confirmed the membership"

    def polling(self) -> None:
        """Note that the consumer is about to be polled, or has been."""
        now_seconds = self._clock.monotonic()
        if self._paused(now_seconds):
            self._unconfirmed = True
        self._polled_at_seconds = now_seconds

    def confirmed(self) -> None:
        """Note that the group has answered: with a rebalance, or by accepting a commit."""
        self._polled_at_seconds = self._clock.monotonic()
        self._unconfirmed = False

    def _paused(self, now_seconds: float) -> bool:
        polled_at_seconds = self._polled_at_seconds
        return self._grouped and polled_at_seconds is not None and now_seconds - polled_at_seconds > self._max_seconds
