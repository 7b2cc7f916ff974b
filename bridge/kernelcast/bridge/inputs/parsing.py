r"""The base class of the inputs that read messages in Python: it makes each message count whole or not at all.

>>> from kernelcast.bridge.inputs import BatchRows, Parsing
>>> class Lines(Parsing):
...     format = "lines"
...
...     def read(self, message: bytes, rows: BatchRows) -> None:
...         for line in message.decode().splitlines():
...             name, host, value = line.split(",")
...             self.add(rows, name, {"host": host}, float(value))
>>> decoded = Lines().decode([b"load,a,0.5\nload,b,2", b"load,c"])
>>> decoded.numbers.value.tolist()
[0.5, 2.0]
>>> len(decoded.failures)
1
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from kernelcast.bridge.inputs.formats import TopicFormat
from kernelcast.bridge.inputs.interning import MAX_IDENTITIES, Interner, Spellings
from kernelcast.bridge.inputs.naming import DescribedFamily, NamedSeries, label_bytes, metric_name
from kernelcast.bridge.inputs.rows import BatchRows
from kernelcast.bridge.tables.columns import Int32Array
from kernelcast.bridge.tables.placement import Placement
from kernelcast.columnar import Decoded, DecoderLimits
from kernelcast.wire.catalogue import Kind
from kernelcast.wire.errors import DecodeError

DEFAULT_LIMITS = DecoderLimits()
MAX_UNUSED = 1000
"""Descriptions without series that are kept, because the next message often has them again."""
LONGEST_HELP = 4096
"""Characters; longer help texts are cut."""
LABEL_BYTES_PER_BYTE = 8
"""Label bytes that a message may make per byte of `message_bytes`: formats that share text, such as remote write 2.0,
could make gigabytes."""


class Parsing(ABC):
    """An input that reads its messages in Python; see `protocol.Input`. Only the thread of its `Selection` uses it.

    A subclass implements `read`, which adds totals and gauges: `add` puts a point of any series into rows. A parser
    that knows spellings of its series is faster: it adds series to `interner` by itself. If `read` raises an error, the
    whole message is rolled back, and it goes to the dead letters.

    Args:
        settings: The topic's settings; None for defaults.
        max_identities: Series known at once.
        limits: Limits of one message; `message_bytes` counts after decompression.
    """

    format: str
    """Its name in settings, metrics and errors."""

    def __init__(
        self,
        settings: TopicFormat | None = None,
        *,
        max_identities: int = MAX_IDENTITIES,
        limits: DecoderLimits = DEFAULT_LIMITS,
    ) -> None:
        if settings is not None:
            self.format = settings.format
        self.limits = limits
        self.interner = Interner(max_identities)
        self._label_bytes = 0
        self._families: dict[DescribedFamily, DescribedFamily] = {}
        self._added: Spellings = {}

    def decode(self, messages: Sequence[bytes]) -> Decoded:
        """Decode a batch; each message counts whole or not at all."""
        rows = BatchRows()
        failures: list[tuple[int, DecodeError]] = []
        for index, message in enumerate(messages):
            self._decode_one(index, message, rows, failures)
        return rows.columns(tuple(failures))

    def identity(self, number: int) -> Placement | int:
        """Identity of a series number, or the reason (a code of `columns`) why it is not stored.

        Raises:
            KeyError: The number is not in use.
        """
        named: NamedSeries = self.interner.identity(number)
        return named.placement(self.format)

    def forget(self, numbers: Int32Array) -> None:
        """Give numbers back; they may come again for other series."""
        self.interner.forget(numbers.tolist())
        self.drop_unused()

    @abstractmethod
    def read(self, message: bytes, rows: BatchRows) -> None:
        """Read one message, no longer than the limit.

        Raises:
            DecodeError: It cannot be used.
        """

    def add(  # noqa: PLR0913  a point has as many parts
        self,
        rows: BatchRows,
        name: str,
        labels: Mapping[str, str],
        value: float,
        *,
        time_ns: int = 0,
        kind: Kind = Kind.UNKNOWN,
        help_text: str = "",
        unit: str = "",
    ) -> None:
        """Add one point.

        Args:
            rows: Where it goes.
            name: The metric's name; characters that Prometheus does not allow become `_`.
            labels: The labels; empty values make none.
            value: A gauge's value, or a counter's total; an int stays exact.
            time_ns: When it was measured, Unix time; 0 for the message's append time.
            kind: Of its metric.
            help_text: One line for people.
            unit: Prometheus' word for the unit.

        Raises:
            DecodeError: The name or the labels are too long.
        """
        self.count_label_bytes(len(name) + sum(map(len, labels)) + sum(map(len, labels.values())))
        key = (name, kind, *labels.items())
        number = self._added.get(key)
        if number is None:
            family = self.shared_family(name, kind, help_text, unit)
            number = self.interner.add(NamedSeries(family, self.labels(labels.items(), kind)))
            self.interner.remember_spelling(number, self._added, key, number)
        rows.series.append(number)
        rows.time_ns.append(time_ns)
        rows.value.append(value)

    def labels(self, pairs: Iterable[tuple[str, str]], kind: Kind = Kind.UNKNOWN) -> bytes:
        """Labels of a series of this kind, in canonical spelling.

        Raises:
            DecodeError: They are too long, or all of the message's are together.
        """
        spelled = label_bytes(pairs, self.limits, kind)
        self.count_label_bytes(len(spelled))
        return spelled

    def count_label_bytes(self, label_bytes_made: int) -> None:
        """Count bytes of labels that the present message has made.

        Raises:
            DecodeError: It has made too many in all.
        """
        self._label_bytes += label_bytes_made
        if self._label_bytes > LABEL_BYTES_PER_BYTE * self.limits.message_bytes:
            raise DecodeError(
                f"message makes more than {LABEL_BYTES_PER_BYTE * self.limits.message_bytes} bytes of labels, the "
                "limit; send smaller batches from the producer, or shorter labels"
            )

    def shared_family(
        self, name: str, kind: Kind, help_text: str = "", unit: str = "", part_of: str = ""
    ) -> DescribedFamily:
        """Return a family's description; the same object for equal ones, to save memory.

        Raises:
            DecodeError: Its name, or its unit, is too long.
        """
        made = DescribedFamily(
            metric_name(name), kind, help_text[:LONGEST_HELP], metric_name(unit), metric_name(part_of)
        )
        return self._families.setdefault(made, made)

    def drop_unused(self) -> None:
        """Drop what no series uses any more; subclasses drop their own tables as well."""
        if len(self._families) > len(self.interner) + MAX_UNUSED:
            self._families.clear()

    def _decode_one(self, index: int, message: bytes, rows: BatchRows, failures: list[tuple[int, DecodeError]]) -> None:
        rows.begin_message()
        self._label_bytes = 0
        try:
            if len(message) > self.limits.message_bytes:
                raise too_long(len(message), self.limits)  # noqa: TRY301  one door for every failure
            self.read(message, rows)
            rows.end_message(index, self.limits)
        except DecodeError as error:
            self._roll_back(rows)
            failures.append((index, error))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self._roll_back(rows)
            reason = f"message of {len(message)} bytes is no {self.format}: {type(error).__name__}: {error}"
            failures.append((index, DecodeError(f"{reason}; look at the producer, or at the topic's bridge.formats")))
        except BaseException:  # whatever it was (memory, an interrupt): half a message must not stay
            self._roll_back(rows)
            raise
        else:
            self.interner.commit(rows.series_of_message() if self.interner.has_fresh else ())
            self.drop_unused()

    def _roll_back(self, rows: BatchRows) -> None:
        rows.roll_back()
        self.interner.roll_back()
        self.drop_unused()


def too_long(length: int, limits: DecoderLimits) -> DecodeError:
    """The error for a message above `DecoderLimits.message_bytes`."""
    return DecodeError(
        f"message is {length} bytes, decompressed; the limit is {limits.message_bytes}; "
        "send smaller batches from the producer"
    )


def text_of(message: bytes, what: str) -> str:
    """A message as text, without a byte order mark.

    Raises:
        DecodeError: It is not UTF-8.
    """
    try:
        return message.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"message of {len(message)} bytes is no {what}: byte {error.start} is not UTF-8; look at the producer, or "
            "at the topic's entry in bridge.formats"
        ) from None


def malformed(what: str, where: str, found: str, expected: str) -> DecodeError:
    """The error for text that breaks its format's grammar."""
    return DecodeError(
        f"message is no {what}: {where} has {found[:120]!r}; expected {expected}; look at the producer, or at the "
        "topic's entry in bridge.formats"
    )
