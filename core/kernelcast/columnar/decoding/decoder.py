"""Decodes OTLP messages to columns: with the compiled walk, and unusual messages with protobuf's parser.

The consuming threads of the bridge and the predictor each have one `Decoder`. In: message values from Kafka. Out:
`columns.Decoded`, in which a number identifies a series; `identity` and `identities` give its name and labels.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kernelcast.columnar.columns import Decoded, Int32Array, UInt8Array
from kernelcast.columnar.decoding import foreign, refusals, tables
from kernelcast.columnar.decoding.identities import Identities
from kernelcast.columnar.decoding.limits import DecoderLimits
from kernelcast.columnar.series import SeriesIdentity, SharedIdentities
from kernelcast.columnar.walk import entries
from kernelcast.columnar.walk.layout import (
    CONTROL_SLOTS,
    EXEMPLARS,
    HISTOGRAM_ROWS,
    MAX_BUCKETS,
    MAX_IDENTITIES,
    MAX_IDENTITY_BYTES,
    MAX_POINTS,
    MESSAGE,
    PROGRESS,
    ROWS,
    SHORT_OF,
    UNSUPPORTED,
    WHERE,
    MessageStatus,
    WalkState,
)
from kernelcast.columnar.walk.lookup import METRIC_KEY_HEADER, QUANTILE_BYTES
from kernelcast.wire.errors import DecodeError

CHUNK_BYTES = 1024 * 1024
"""Messages are laid end to end this many bytes at a time: few calls, and the copy stays in the processor's cache."""

END = b"\0"
"""One byte after the messages: numpy makes no array of no bytes."""

DEFAULT_LIMITS = DecoderLimits()


class Decoder:
    """Converts OTLP messages to columns and assigns a number to every series.

    A message is decoded completely or not at all. protobuf also parses a message with unusual parts, or with new ones
    that are not plain (see `walk.plain`), and decides whether it is valid. Not thread-safe: each consuming thread has
    its own decoder. Compiled code releases the GIL.

    Args:
        max_identities: Largest number of known wire identities; a message with further ones is refused. One takes
            about 70 bytes, and its attributes once for all metrics that share them. A producer that writes its
            attributes in two orders has two.
        limits: Limits of one message.
    """

    def __init__(self, *, max_identities: int = 4_000_000, limits: DecoderLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        control = np.zeros(CONTROL_SLOTS, np.int64)
        control[MAX_POINTS] = limits.points_per_message
        control[MAX_BUCKETS] = limits.buckets_per_point
        control[MAX_IDENTITY_BYTES] = limits.identity_bytes
        control[MAX_IDENTITIES] = max_identities
        self._state = WalkState(
            control=control,
            series=tables.new_store(),
            contexts=tables.new_store(),
            numbers=tables.new_numbers(),
            histograms=tables.new_histograms(),
            exemplars=tables.new_exemplars(),
            data=tables.new_data(),
            key=np.zeros(limits.identity_bytes + METRIC_KEY_HEADER + QUANTILE_BYTES, np.uint8),
        )
        self._identities = Identities()
        self._raw_exemplars: list[bytes] = []

    @staticmethod
    def warm_up() -> None:
        """Compile, or load machine code from disk. It takes seconds the first time, so call it before subscribing."""
        decoder = Decoder()
        decoder.decode([b""])
        decoder._state = decoder._state._replace(series=tables.grown_store(decoder._state.series, 0))
        entries.compact(decoder._state.contexts, np.zeros(1, np.uint8))
        entries.relocate(decoder._state.series, decoder._state.contexts)
        entries.roll_back(decoder._state)
        decoder.identities(np.zeros(0, np.int32))
        decoder.forget(np.zeros(0, np.int32))

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decode a batch.

        Args:
            messages: Serialised `ExportMetricsServiceRequest`s.

        Returns:
            Their points in order, and the messages that failed, which contribute nothing.
        """
        self._state.control[:PROGRESS] = 0
        self._raw_exemplars = []
        failures: list[tuple[int, DecodeError]] = []
        for first, chunk in self._chunks(messages, failures):
            self._decode_chunk(first, chunk, failures)
        control = self._state.control
        decoded = Decoded(
            numbers=tables.cut_numbers(self._state.numbers[: control[ROWS]]),
            histograms=tables.cut_histograms(self._state.histograms[: control[HISTOGRAM_ROWS]], self._state.data),
            failures=tuple(sorted(failures, key=lambda failure: failure[0])),
            unsupported=int(control[UNSUPPORTED]),
            exemplars=tables.cut_exemplars(self._state.exemplars[: control[EXEMPLARS]], self._raw_exemplars),
        )
        self._state = tables.without_excess(self._state)
        return decoded

    def identity(self, number: int) -> SeriesIdentity:
        """Return the identity behind a series number. It is computed at each call, so callers should cache it.

        Raises:
            KeyError: The number is not in use.
        """
        return self._identities.identity(self._state, number)

    def identities(self, numbers: Int32Array) -> SharedIdentities:
        """Return the identities behind many series numbers, with shared parts stored once.

        Args:
            numbers: Shape (k,), int32.

        Raises:
            KeyError: A number is not in use.
        """
        return self._identities.shared_identities(self._state, numbers)

    def forget(self, numbers: Int32Array) -> None:
        """Free series numbers; they may be used for other series. Numbers that are not in use are ignored.

        Args:
            numbers: Shape (k,), int32.
        """
        entries.release(self._state, np.ascontiguousarray(numbers, np.int32))
        contexts = tables.compacted_store(self._state.contexts)
        if contexts is not self._state.contexts:
            entries.relocate(self._state.series, contexts)
            self._state = self._state._replace(contexts=contexts)

    def _chunks(
        self, messages: Sequence[bytes], failures: list[tuple[int, DecodeError]]
    ) -> Iterator[tuple[int, list[bytes]]]:
        """Yield runs of messages of about CHUNK_BYTES, each with the index of its first message.

        A message that is too long is a failure and ends a run.
        """
        first, size = 0, 0
        chunk: list[bytes] = []
        for index, message in enumerate(messages):
            length = len(message)
            too_long = length > self._limits.message_bytes
            if chunk and (too_long or size + length > CHUNK_BYTES):
                yield first, chunk
                chunk, size = [], 0
            if too_long:
                failures.append((index, refusals.too_long(length, self._limits)))
                continue
            if not chunk:
                first = index
            chunk.append(message)
            size += length
        if chunk:
            yield first, chunk

    def _decode_chunk(self, first: int, chunk: list[bytes], failures: list[tuple[int, DecodeError]]) -> None:
        joined = np.frombuffer(b"".join([*chunk, END]), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, chunk), np.int64, len(chunk)))
        index = 0
        while True:
            self._state.control[MESSAGE] = first
            index, status = self._walk(joined, ends, index)
            if index == len(chunk):
                self._copy_exemplars(joined)
                return
            if status is not MessageStatus.OK:  # it may be walked in other bytes
                self._copy_exemplars(joined)
            try:
                self._finish_message(first + index, chunk[index], status, int(ends[index]) - len(chunk[index]))
            except DecodeError as error:
                failures.append((first + index, error))
            index += 1

    def _walk(self, joined: UInt8Array, ends: NDArray[np.int64], index: int) -> tuple[int, MessageStatus]:
        """Walk on from message `index`, and enlarge arrays on demand, until a message stops it for another reason."""
        while True:
            index, code = entries.batch(self._state, joined, ends, index)
            status = MessageStatus(code)
            if not self._grow(status):
                return index, status

    def _finish_message(self, index: int, message: bytes, status: MessageStatus, start: int) -> None:
        """Finish a message that stopped the walk.

        Raises:
            DecodeError: It cannot be used; nothing of it remains.
        """
        where = max(0, int(self._state.control[WHERE]) - start)
        # ODD: the walk does not read the message. OFFSET_OUT_OF_RANGE: protobuf may merge two offsets to a valid one.
        # OK: the walk has read it, and protobuf must say whether its new parts are valid. Others: over a limit.
        if status in (MessageStatus.ODD, MessageStatus.OFFSET_OUT_OF_RANGE):
            self._decode_odd(index, message, where)
        elif status is MessageStatus.OK:
            try:
                foreign.check(message, where)
            except BaseException:  # whatever it was (memory, an interrupt): unverified identities must not stay
                entries.roll_back(self._state)
                raise
        else:
            raise refusals.over_limit(status, self._state.control, where)

    def _decode_odd(self, index: int, message: bytes, where: int) -> None:
        """Decode a message that the walk does not read, in the form in which protobuf rewrites it."""
        rewritten = np.frombuffer(foreign.canonical(message, where) + END, np.uint8)
        self._state.control[MESSAGE] = index
        _, status = self._walk(rewritten, np.array([len(rewritten) - len(END)], np.int64), 0)
        if status is not MessageStatus.OK:
            raise refusals.over_limit(status, self._state.control, where)
        self._copy_exemplars(rewritten)

    def _copy_exemplars(self, walked: UInt8Array) -> None:
        """Copy the exemplars that the walk has noted since the last call; `walked` are the bytes that it has read."""
        noted = self._state.exemplars[len(self._raw_exemplars) : self._state.control[EXEMPLARS]]
        spans = zip(noted["start"].tolist(), noted["stop"].tolist(), strict=True)
        self._raw_exemplars += [walked[start:stop].tobytes() for start, stop in spans]

    def _grow(self, status: MessageStatus) -> bool:
        """Enlarge the array that was too small for the walk; returns whether there was one."""
        state = self._state
        short_of = int(state.control[SHORT_OF])
        if status is MessageStatus.GROW_NUMBERS:
            state = state._replace(numbers=tables.doubled(state.numbers))
        elif status is MessageStatus.GROW_HISTOGRAMS:
            state = state._replace(histograms=tables.doubled(state.histograms))
        elif status is MessageStatus.GROW_EXEMPLARS:
            state = state._replace(exemplars=tables.doubled(state.exemplars))
        elif status is MessageStatus.GROW_BUCKETS:
            state = state._replace(data=tables.doubled(state.data))
        elif status is MessageStatus.GROW_SERIES:
            state = state._replace(series=tables.grown_store(state.series, short_of))
        elif status is MessageStatus.GROW_CONTEXTS:
            state = state._replace(contexts=tables.grown_store(state.contexts, short_of))
        else:
            return False
        self._state = state
        return True
