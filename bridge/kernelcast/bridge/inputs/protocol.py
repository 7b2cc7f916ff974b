"""The protocol of inputs: messages in, columns out, and series known by number. `Selection` calls them."""

from collections.abc import Sequence
from typing import Protocol

from kernelcast.bridge.tables.columns import Int32Array
from kernelcast.bridge.tables.placement import Placement
from kernelcast.columnar import Decoded, SeriesIdentity


class IdentitySource(Protocol):
    """The identities of an input's series, by number."""

    def identity(self, number: int) -> SeriesIdentity | Placement | int:
        """Return a series of OTLP or of Prometheus, or the reason (a code of `columns`) why it is not stored."""

    def forget(self, numbers: Int32Array) -> None:
        """Give numbers back; they may come again for other series."""


class Input(IdentitySource, Protocol):
    """Reads one format; `columnar.Decoder` is one. For one thread.

    Each input numbers its series from 0 by itself. A point whose time is 0 has none, and takes its message's.
    """

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decode a batch; each message counts whole or not at all."""
