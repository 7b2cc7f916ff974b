"""Sends each message that cannot be used to the dead letter topic once, however often it is read."""

from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.runtime.kafka.clients import DeadLetterSink, ReceivedMessage
from kernelcast.wire.topics import DEADLETTER


class FirstTimeDeadLetters:
    """Sends a message to the dead letter topic unless a replica has done so before. Only the consuming thread uses it.

    Messages are read more than once: an assignment rereads one time-to-live, and replicas without a group read the same
    messages. A message below `Partition.judged_to` was processed before; one of a partition that waits for its start
    offset is read again from there.
    """

    def __init__(self, dead_letters: DeadLetterSink, ownership: Ownership, instruments: Instruments) -> None:
        self._dead_letters, self._ownership, self._instruments = dead_letters, ownership, instruments

    def send(self, message: ReceivedMessage, error: Exception) -> None:
        """Send a message, or count the reason for not sending it."""
        topic, number = message.topic() or "", message.partition() or 0
        partition = self._ownership.get((topic, number))
        reason = ""
        if topic == DEADLETTER.name:
            reason = "dead_letter"  # sending it again would add a copy each time it is read
        elif partition is not None and (partition.waits or (message.offset() or 0) < partition.judged_to):
            reason = "repeated"
        if reason:
            self._instruments.left.labels(reason).inc()
        else:
            self._dead_letters.send(message, error)
