"""Labels of each producer's `target_info`: the attributes of all resources with its job and instance, merged.

`Heartbeats` notes the attributes of new series, and makes the series from the labels.
"""

from collections.abc import Iterable

import numpy as np

from kernelcast.bridge.tables.columns import UInt8Array
from kernelcast.bridge.tables.producers import UNLISTED_PRODUCER
from kernelcast.bridge.translation.attributes import joined, producer_labels, rendered
from kernelcast.columnar import Attributes


class TargetAttributes:
    """Resource attributes by producer and writer (a resource and a scope); the store's lock protects it.

    Attributes:
        stale: Producers whose labels may have changed since their last use.
    """

    def __init__(self) -> None:
        self._of_writer: dict[int, tuple[int, Attributes]] = {}
        self._writers: dict[int, set[int]] = {}
        self._alive: UInt8Array = np.zeros(16, np.uint8)
        self.stale: set[int] = set()

    def note(self, producer: int, writer: int, target: Attributes) -> None:
        """Set the attributes of a writer's resource, which may be empty."""
        known = self._of_writer.get(writer)
        if known == (producer, target) or (known is None and (producer == UNLISTED_PRODUCER or not target)):
            return
        self._forget(writer)
        if target and producer != UNLISTED_PRODUCER:
            self._of_writer[writer] = (producer, target)
            self._writers.setdefault(producer, set()).add(writer)
            self.stale.add(producer)

    def keep(self, alive: UInt8Array) -> None:
        """Forget writers without series; `alive` is indexed by writer number."""
        for writer in [writer for writer in self._of_writer if not alive[writer]]:
            self._forget(writer)

    def forget(self, producers: Iterable[int]) -> None:
        """Forget producers without series."""
        for writer in [writer for one in producers for writer in self._writers.get(one, ())]:
            self._forget(writer)

    def of(self, producer: int) -> bool:
        """Whether a producer has attributes."""
        return producer in self._writers

    def labels(self, producer: int, name: tuple[str, str]) -> bytes:
        """Return a producer's rendered labels; empty if it has no attributes.

        Of two values of one attribute the greater one is used, so that all replicas choose the same.
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
