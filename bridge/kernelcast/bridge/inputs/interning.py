"""Gives a series number to each series that a parser of text knows, and takes numbers back when series end.

A *spelling* is a series as a producer writes it, such as the text before a line's value. A parser looks it up in a
dictionary of its own (`Spellings`), so the text is parsed only once. When a series ends, all its spellings must go, or
they would return the number of another series.
"""

from collections.abc import Container, Hashable, Iterable
from typing import Any, Final

from kernelcast.wire.errors import DecodeError

MAX_IDENTITIES: Final = 2_000_000
"""Largest number of series. One takes about 400 bytes in an input of text, twice as much as in the OTLP decoder."""

MAX_SPELLINGS: Final = 1_000
"""Spellings of one series that are kept, such as the lines of a histogram's buckets; any other is parsed each time."""

Spellings = dict[Any, Any]
"""By spelling, the data of a parser: most often a series number."""


class Interner:
    """Series by number, with their spellings; for one thread, that of its input.

    Each message is a transaction: `add` and `remember_spelling` while it is read, then `commit` or `roll_back`;
    `forget` comes between messages.
    Two spellings of a series (labels in another order) may have two numbers: the store maps both to one slot.

    Args:
        max_identities: Series known at once; more are an error of the message that brings them.
    """

    def __init__(self, max_identities: int = MAX_IDENTITIES) -> None:
        self._max_identities = max_identities
        self._identities: list[Any] = []
        self._spellings: list[list[tuple[Spellings, Hashable]]] = []
        self._free: list[int] = []
        self._fresh: list[int] = []
        self._fresh_spellings: list[tuple[int, Spellings, Hashable]] = []

    def __len__(self) -> int:
        return len(self._identities) - len(self._free)

    def add(self, identity: object) -> int:
        """Return a number for a new series.

        Raises:
            DecodeError: There are too many.
        """
        if self._free:
            number = self._free.pop()
            self._identities[number] = identity
        elif len(self._identities) < self._max_identities:
            number = len(self._identities)
            self._identities.append(identity)
            self._spellings.append([])
        else:
            raise DecodeError(
                f"message brings a series beyond the {self._max_identities} that may be known at once; drop a label "
                "of high cardinality at the producer, or spread partitions over more consumers"
            )
        self._fresh.append(number)
        return number

    def remember_spelling(self, number: int, spellings: Spellings, spelling: Hashable, kept: object) -> None:
        """Set `spellings[spelling]`, which has no value yet, to `kept` until the series is forgotten."""
        if len(self._spellings[number]) >= MAX_SPELLINGS:
            return
        spellings[spelling] = kept
        self._spellings[number].append((spellings, spelling))
        self._fresh_spellings.append((number, spellings, spelling))

    @property
    def has_fresh(self) -> bool:
        """Whether the present message has new series."""
        return bool(self._fresh)

    def identity(self, number: int) -> Any:
        """The identity of a series.

        Raises:
            KeyError: The number is not in use.
        """
        identity = self._identities[number] if 0 <= number < len(self._identities) else None
        if identity is None:
            raise KeyError(number)
        return identity

    def forget(self, numbers: Iterable[int]) -> None:
        """Free numbers with all their spellings; unused numbers are skipped."""
        for number in numbers:
            if not 0 <= number < len(self._identities) or self._identities[number] is None:
                continue
            for spellings, spelling in self._spellings[number]:
                spellings.pop(spelling, None)
            self._spellings[number] = []
            self._identities[number] = None
            self._free.append(number)

    def commit(self, used: Container[int]) -> None:
        """Keep the new series of the present message, except those without a point, which would never be freed."""
        self.forget([number for number in self._fresh if number not in used])
        self._fresh.clear()
        self._fresh_spellings.clear()

    def roll_back(self) -> None:
        """Remove the new series and spellings of the present message, which was refused."""
        fresh = set(self._fresh)
        for number, spellings, spelling in reversed(self._fresh_spellings):
            if number not in fresh:
                spellings.pop(spelling, None)
                self._spellings[number].pop()
        self.forget(self._fresh)
        self._fresh.clear()
        self._fresh_spellings.clear()
