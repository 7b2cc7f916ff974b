"""States of one predictor that belong to no partition (scores, findings), in parts that fit into Kafka's messages.

`cycle_loop` reads each at its start and writes it at intervals, on the topic `kernelcast.state`.
"""

import struct
import time
import zlib
from collections.abc import Callable
from typing import Final

from confluent_kafka import OFFSET_BEGINNING

from kernelcast.runtime.kafka.clients import Sender
from kernelcast.runtime.kafka.replay import ReplayConsumer, to_end
from kernelcast.wire.errors import WireError
from kernelcast.wire.topics import STATE

PART_BYTES: Final = 384 * 1024
"""Well under Kafka's default limit of a message, and under the embedded broker's."""
_HEAD: Final = struct.Struct("<IHH")  # checksum of the whole state, number of the part, number of parts


class OwnState:
    """Writes and reads one state of one predictor, such as its scores; keys are `predictor-NAME|GROUP|CLIENT|PART`."""

    def __init__(
        self,
        name: str,
        group_id: str,
        client_id: str,
        producer: Sender,
        open_reader: Callable[[], ReplayConsumer],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._prefix = f"predictor-{name}|{group_id}|{client_id}|"
        self._producer = producer
        self._open_reader = open_reader
        self._monotonic = monotonic

    def write(self, state: bytes) -> int:
        """Queue a state; returns its number of parts."""
        parts = [state[begin : begin + PART_BYTES] for begin in range(0, len(state), PART_BYTES)] or [b""]
        checksum = zlib.crc32(state)
        for number, part in enumerate(parts):
            value = _HEAD.pack(checksum, number, len(parts)) + part
            self._producer.send(STATE.name, key=f"{self._prefix}{number}".encode(), value=value)
        return len(parts)

    def read(self) -> bytes | None:
        """The newest state; None without one.

        Raises:
            BrokerError: Kafka does not answer.
            WireError: A part is absent, or of another state, as after a crash between two parts.
        """
        newest: dict[int, bytes] = {}
        reader = self._open_reader()
        try:
            partitions = reader.partitions(STATE.name)
            for partition in partitions:
                partition.offset = OFFSET_BEGINNING
            for message in to_end(reader, partitions, monotonic=self._monotonic):
                key, value = (message.key() or b"").decode(errors="replace"), message.value()
                number = key.removeprefix(self._prefix)
                if key.startswith(self._prefix) and number.isdecimal() and value and len(value) >= _HEAD.size:
                    newest[int(number)] = value
        finally:
            reader.close()
        return _joined(newest)


def _joined(newest: dict[int, bytes]) -> bytes | None:
    """The state whose parts these are; None without a first part."""
    if 0 not in newest:
        return None
    checksum, _, parts = _HEAD.unpack_from(newest[0])
    bodies = [newest.get(number, b"") for number in range(parts)]
    state = b"".join(part[_HEAD.size :] for part in bodies)
    if zlib.crc32(state) != checksum:
        raise WireError(f"the state has {parts} parts that do not belong together, or one is absent; it begins again")
    return state
