"""Labels of `target_info` of each producer: its resources' attributes, merged where several share job and instance."""

import numpy as np

from kernelcast.bridge.tables.columns import UInt8Array
from kernelcast.bridge.tables.producers import NOBODY
from kernelcast.bridge.translation.attributes import joined, producer_labels, rendered
from kernelcast.columnar import Attributes


class TargetAttributes:
    """Attributes by producer and writer (a resource and a scope); not thread-safe.

    Attributes:
        stale: Producers whose labels may have changed since they were last asked for.
    """

    def __init__(self) -> None:
        self._of_writer: dict[int, tuple[int, Attributes]] = {}
        self._writers: dict[int, set[int]] = {}
        self._alive: UInt8Array = np.zeros(16, np.uint8)
        self.stale: set[int] = set()

    def note(self, producer: int, writer: int, target: Attributes) -> None:
        """Note the attributes of a writer's resource; none at all is noted, too."""
        known = self._of_writer.get(writer)
        if known == (producer, target) or (known is None and (producer == NOBODY or not target)):
            return
        self._forget(writer)
        if target and producer != NOBODY:
            self._of_writer[writer] = (producer, target)
            self._writers.setdefault(producer, set()).add(writer)
            self.stale.add(producer)

    def keep(self, alive: UInt8Array) -> None:
        """Forget writers of which no series is left; `alive` by writer number."""
        for writer in [writer for writer in self._of_writer if not alive[writer]]:
            self._forget(writer)

    def of(self, producer: int) -> bool:
        """Whether anything is known of a producer."""
        return producer in self._writers

    def labels(self, producer: int, name: tuple[str, str]) -> bytes:
        """A producer's labels, rendered; empty where nothing is known of it.

        Of two values of one attribute the greater is taken: every replica has the same one, whichever came first.
        """
        merged: dict[str, str] = {}
        for writer in self._writers.get(producer, ()):
            for key, value in self._of_writer[writer][1]:
                merged[key] = max(value, merged.get(key, ""))
        own = producer_labels(name)
        return rendered(joined(sorted(merged.items()), reserved=tuple(own)) | own) if merged else b""

    def _forget(self, writer: int) -> None:
        known = self._of_writer.pop(writer, None)
        if known is not None:
            producer = known[0]
            self.stale.add(producer)
            self._writers[producer].discard(writer)
            if not self._writers[producer]:
                del self._writers[producer]
