"""Views, the part of the series that a scrape selects: `/metrics?shard=1/4&name[]=up`."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kernelcast.wire.errors import RequestError

MAX_SHARDS: Final = 256
"""Each shard has a cached layout and a scrape; a million series need about ten."""
MAX_NAMES: Final = 100
"""Families of one request; more would make a URL of several KiB."""
LONGEST_NAME: Final = 256
"""Characters of a family in a request."""
SHARD: Final = "shard"
NAMES: Final = "name[]"
_SHARD: Final = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A part of the series; by default, all of them.

    Attributes:
        shard: (i, n): the i-th of n parts, selected by a stable hash; a histogram is never divided.
        names: Families by their exact names; empty for all.
    """

    shard: tuple[int, int] | None = None
    names: frozenset[str] = frozenset()

    @property
    def includes_process_metrics(self) -> bool:
        """Whether it includes the process's own metrics. Only the first shard does, so that none is exposed twice."""
        return self.shard is None or self.shard[0] == 0

    def shows(self, family: str) -> bool:
        """Whether it includes a family."""
        return not self.names or family in self.names


ALL: Final = SeriesView()


def view_of(shards: Sequence[str], names: Sequence[str]) -> SeriesView:
    """Return the view that a query selects.

    Args:
        shards: Values of the parameter `shard`; at most one.
        names: Values of the parameter `name[]`.

    Raises:
        RequestError: A parameter is malformed.
    """
    if len(shards) > 1:
        raise RequestError(f"shard is given {len(shards)} times; give it once, as in shard=0/4")
    if len(names) > MAX_NAMES:
        raise RequestError(f"name[] is given {len(names)} times; the limit is {MAX_NAMES}; ask in several requests")
    for name in names:
        if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
            raise RequestError(
                f"name[] is {name[:LONGEST_NAME]!r}; give the exact name of a metric family, as in name[]=up"
            )
    return SeriesView(_shard(shards[0]) if shards else None, frozenset(names))


def _shard(text: str) -> tuple[int, int]:
    match = _SHARD.fullmatch(text)
    if match is None:
        raise RequestError(f"shard is {text[:LONGEST_NAME]!r}; write i/n with 0 <= i < n, as in shard=0/4")
    number, count = int(match[1]), int(match[2])
    if not 1 <= count <= MAX_SHARDS:
        raise RequestError(f"shard is {text}; n must be from 1 to {MAX_SHARDS}")
    if number >= count:
        raise RequestError(f"shard is {text}; i counts from 0, so the last shard is {count - 1}/{count}")
    return number, count
