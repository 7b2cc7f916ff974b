"""Snapshots of a store, made of plain values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernelcast.bridge.layouts.layout import Layout, StoreSnapshot
from kernelcast.bridge.layouts.page import PackedTexts, PageValues
from kernelcast.bridge.layouts.view import ALL, SeriesView
from kernelcast.bridge.tables.columns import HAS_SUM, INTEGER, NOT_A_HISTOGRAM
from kernelcast.bridge.tables.families import Family
from kernelcast.wire.catalogue import Kind

Key = tuple[str, tuple[tuple[str, str], ...]]


def rendered(labels: Sequence[tuple[str, str]]) -> bytes:
    """Labels as the bridge's pages have them."""
    escaped = ((name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for name, value in labels)
    return ("{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "} ").encode()


@dataclass
class FakeStore:
    """A store whose series are given; a histogram is given as its sum, None without one, and its count.

    Attributes:
        values: By name and labels, the value, or (sum, count).
    """

    values: Mapping[Key, float | tuple[float | None, int]] = field(default_factory=dict)
    views: list[SeriesView] = field(default_factory=list)
    _layouts: dict[tuple[Key, ...], Layout] = field(default_factory=dict)

    def snapshot(self, view: SeriesView = ALL) -> StoreSnapshot:
        self.views.append(view)
        keys = tuple(sorted(key for key in self.values if view.shows(key[0])))
        if keys not in self._layouts:
            self._layouts = {keys: self._layout(keys)}
        given = [self.values[key] for key in keys]
        histogram = [isinstance(value, tuple) for value in given]
        integer = [value[1] if isinstance(value, tuple) else int(value) for value in given]
        value = [
            value[0] or 0.0 if isinstance(value, tuple) else math.nan if value == int(value) else value
            for value in given
        ]
        flags = [
            (0 if value[0] is None else HAS_SUM) if isinstance(value, tuple) else INTEGER if value == int(value) else 0
            for value in given
        ]
        n = len(keys)
        empty = PackedTexts.of(())
        zeros = np.zeros(n, np.int64)
        schema = np.where(np.array(histogram, bool), 0, NOT_A_HISTOGRAM).astype(np.int32)
        columns = np.array(value, np.float64), np.array(integer, np.int64)
        values = PageValues(
            *columns, zeros, zeros, schema, np.array(flags, np.uint8), zeros, zeros, np.zeros(0, np.float64), empty
        )
        return StoreSnapshot(self._layouts[keys], values, 1)

    def _layout(self, keys: tuple[Key, ...]) -> Layout:
        names = list(dict.fromkeys(name for name, _ in keys))
        starts = [next(place for place, key in enumerate(keys) if key[0] == name) for name in names]
        texts = [rendered(labels) for _, labels in keys]
        lengths = np.array([len(text) for text in texts], np.int32)
        offsets = np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)
        families = tuple(Family(number, name, Kind.GAUGE, "") for number, name in enumerate(names))
        arena = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
        slots = np.arange(len(keys), dtype=np.int32)
        return Layout(slots, np.array([*starts, len(keys)]), families, lambda _: False, arena, offsets, lengths)
