"""What every input is: messages in, columns out, and series known by number."""

from collections.abc import Sequence
from typing import Protocol

from kernelcast.bridge.series.columns import Int32Array
from kernelcast.bridge.translation.translate import Placement
from kernelcast.columnar import Decoded, SeriesIdentity


class Input(Protocol):
    """Reads one format; `columnar.Decoder` is one. For one thread.

    Each input numbers its series from 0 by itself. A point whose time is 0 has none, and takes its message's.
    """

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decode a batch; each message counts whole or not at all."""

    def identity(self, number: int) -> SeriesIdentity | Placement | int:
        """What a series number stands for: a series of OTLP, one of Prometheus as it is, or why it is not stored."""

    def forget(self, numbers: Int32Array) -> None:
        """Give numbers back; they may come again for other series."""
