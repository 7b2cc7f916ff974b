"""Lines of the bridge's landing page (`/`): age of the newest sample, producers, lines of `/metrics`.

The web server calls `facts` for each request, on one of its threads.
"""

from typing import Final

from kernelcast.bridge.browser.ring import samples_of
from kernelcast.bridge.pages.layout import SnapshotSource
from kernelcast.bridge.pages.view import SeriesView
from kernelcast.bridge.tables.columns import INTEGER
from kernelcast.runtime.web.landing import Fact, ago
from kernelcast.wire.catalogue.bridge import PRODUCER_AGE, PRODUCER_UP

_AGE, _UP = PRODUCER_AGE.prometheus_name, PRODUCER_UP.prometheus_name
_VIEW: Final = SeriesView(names=frozenset({_AGE, _UP}))
OLD_SECONDS: Final = 60.0
"""Age from which the newest sample is shown as wrong: several export intervals."""
MAX_NAMED: Final = 5
"""Silent producers that are named; further ones are counted."""


def facts(store: SnapshotSource, lines: int, *, hidden: bool) -> list[Fact]:
    """Facts of now from the store.

    Args:
        store: The series.
        lines: Lines of all stored series.
        hidden: Whether the store's series must not be shown now.
    """
    if hidden:
        return [Fact("Newest sample", "not known: partitions may belong to another bridge now", wrong=True)]
    ages: list[float] = []
    up: dict[str, bool] = {}
    snapshot = store.snapshot(_VIEW)
    for position, name, labels in samples_of(snapshot.layout):
        values = snapshot.values
        value = float(values.integer[position] if values.flags[position] & INTEGER else values.value[position])
        if name == _AGE:
            ages.append(value)
        else:
            known = dict(labels)
            up[f"{known.get('job', '')} {known.get('instance', '')}"] = bool(value)
    silent = sorted(name for name, alive in up.items() if not alive)
    named = ", ".join(silent[:MAX_NAMED]) + (f" and {len(silent) - MAX_NAMED} more" if len(silent) > MAX_NAMED else "")
    newest = min(ages, default=None)
    return [
        Fact("Newest sample", "none: no producer has sent yet, or all have long been silent")
        if newest is None
        else Fact("Newest sample", ago(newest), wrong=newest > OLD_SECONDS),
        Fact("Producers seen", str(len(up))),
        *([Fact("Silent producers", named, wrong=True)] if silent else []),
        Fact("Lines on /metrics", f"{lines:,}"),
    ]
