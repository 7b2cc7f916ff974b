"""The saved states of all partitions that this process reads; `Engine` saves and restores them through it."""

from collections.abc import Callable, Iterator

from kernelcast.predictor.arrays import Ints
from kernelcast.predictor.series.saved.reader import Restored, StateReader
from kernelcast.predictor.series.saved.rows import SavedRows
from kernelcast.predictor.series.saved.writer import Message, StateWriter

Partition = tuple[str, int]


class States:
    """A writer for each partition; it continues the restored sequence and places of series.

    Attributes:
        rows: Everything that is saved of a series; columns can be added.
    """

    def __init__(self, rows: SavedRows, *, every_seconds: float, clock_ns: Callable[[], int]) -> None:
        self.rows = rows
        self._every_seconds = every_seconds
        self._clock_ns = clock_ns
        self._writers: dict[Partition, StateWriter] = {}

    def restore(self, partition: Partition, reader: StateReader, *, owner: int, now_seconds: float) -> Restored:
        """Restore a partition's series; the lock is held for a page at a time."""
        known = reader.keys
        restored = reader.restore(self.rows, owner, now_seconds=now_seconds)
        epoch = max(self._clock_ns(), restored.epoch + 1)
        self._writers[partition] = StateWriter(
            self.rows,
            epoch=epoch,
            sequence=restored.sequence,
            every_seconds=self._every_seconds,
            known=known,
            slots=restored.slots,
        )
        return restored

    def save(self, partition: Partition, rows: Ints, offset: int) -> Iterator[Message]:
        """The messages of a partition's next snapshot; one thread at a time."""
        writer = self._writers.get(partition)
        if writer is None:
            writer = self._writers[partition] = StateWriter(
                self.rows, epoch=self._clock_ns(), sequence=0, every_seconds=self._every_seconds
            )
        return writer.save(rows, offset)

    def undelivered(self, partition: Partition, key: str) -> None:
        """Write a message again that Kafka did not accept; callable from any thread."""
        writer = self._writers.get(partition)
        if writer is not None:
            writer.undelivered(key)

    def leave(self, partition: Partition) -> None:
        """Stop writing a partition."""
        self._writers.pop(partition, None)
