"""The content of the bridge's first page (`/`): the store's series as a page that `kernelcast.view` draws.

The web server's thread for first pages uses it; the store takes its own lock.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

from kernelcast.bridge.layouts.layout import Layout, SnapshotSource, StoreSnapshot
from kernelcast.bridge.layouts.view import SeriesView
from kernelcast.bridge.tables.columns import HAS_SUM, INTEGER, NOT_A_HISTOGRAM
from kernelcast.runtime import prometheus_text
from kernelcast.runtime.prometheus_text import TextSample
from kernelcast.view.page import NAMES, ScrapedPage, page_of
from kernelcast.wire.catalogue.bridge import CAUGHT_UP
from kernelcast.wire.errors import PageError

MAX_SERIES: Final = 2_000
"""Series of each family that are read; a store may have a million kernels, for which the dashboards are made."""
_VIEW: Final = SeriesView(names=NAMES)


class StorePages:
    """Reads the store as a page. For one thread at a time.

    Args:
        store: The series.
        unknown: The reason why the series must not be shown now; empty where they may be.
    """

    def __init__(self, store: SnapshotSource, unknown: Callable[[], str]) -> None:
        self._store, self._unknown = store, unknown
        self._layout: Layout | None = None
        self._labels: dict[int, dict[str, str]] = {}

    def read(self) -> ScrapedPage:
        """The store's series of now.

        Raises:
            PageError: They are not known.
        """
        if reason := self._unknown():
            raise PageError(reason)
        snapshot = self._store.snapshot(_VIEW)
        if self._layout is not snapshot.layout:
            self._layout, self._labels = snapshot.layout, {}
        page = page_of(self._samples(snapshot))
        page.bridge[CAUGHT_UP.prometheus_name] = 1.0
        return page

    def _samples(self, snapshot: StoreSnapshot) -> Iterator[TextSample]:
        layout, values = snapshot.layout, snapshot.values
        for number, family in enumerate(layout.families):
            first = int(layout.starts[number])
            for position in range(first, min(int(layout.starts[number + 1]), first + MAX_SERIES)):
                labels, flags = self._labels_of(position), int(values.flags[position])
                if values.schema[position] == NOT_A_HISTOGRAM:
                    value = values.integer[position] if flags & INTEGER else values.value[position]
                    yield TextSample(family.name, labels, float(value))
                    continue
                total = float(values.value[position]) if flags & HAS_SUM else math.nan
                yield TextSample(f"{family.name}_sum", labels, total)
                yield TextSample(f"{family.name}_count", labels, float(values.integer[position]))

    def _labels_of(self, position: int) -> dict[str, str]:
        labels = self._labels.get(position)
        if labels is None:
            layout = self._layout
            assert layout is not None  # noqa: S101  `read` has set it
            begin = int(layout.label_offset[position])
            text = layout.arena[begin : begin + int(layout.label_length[position])].tobytes()
            labels = self._labels[position] = parsed_labels(text)
        return labels


def parsed_labels(rendered: bytes) -> dict[str, str]:
    """Labels of a series from the text of its page."""
    text = rendered.decode("utf-8", "replace").strip().strip("{}").rstrip(",")
    pairs, _ = prometheus_text.labels(f"{text}}}", 0)
    return {name: value or "" for name, value in pairs}
