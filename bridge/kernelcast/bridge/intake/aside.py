"""Messages that could not be used are put aside once, however often they are read."""

from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.intake.batch import Aside, Message
from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.bridge.tables.share import Share
from kernelcast.wire.topics import DEADLETTER


class FirstTime:
    """Passes on what nobody has put aside before.

    An assignment reads one time-to-live again, and replicas without a group read the same messages. What stands before
    the offset that a partition has been read or committed to was judged then; of what is new, each replica puts aside
    its share of the partitions.
    """

    def __init__(self, aside: Aside, ownership: Ownership, instruments: Instruments, *, share: Share | None) -> None:
        self._aside, self._ownership, self._instruments, self._share = aside, ownership, instruments, share

    def send(self, message: Message, error: Exception) -> None:
        """Put a message aside, or count why not."""
        topic, number = message.topic() or "", message.partition() or 0
        partition = self._ownership.get((topic, number))
        reason = ""
        if topic == DEADLETTER.name:
            reason = "dead_letter"  # put aside again, it would be read again, without end
        elif partition is not None and (message.offset() or 0) < partition.judged_to:
            reason = "repeated"
        elif self._share is not None and number % self._share.count != self._share.index:
            reason = "other_replica"
        if reason:
            self._instruments.left.labels(reason).inc()
        else:
            self._aside.send(message, error)
