"""Reads CSV files of recorded series, `timestamp,value` and any label columns, into the input table of a backtest."""

import csv
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelcast.wire.errors import ConfigurationError

if TYPE_CHECKING:
    from _csv import Reader

TIME: Final = "timestamp"
VALUE: Final = "value"
EMPTY: Final = frozenset({"", "nan", "NaN", "null", "None"})
"""Texts of a missing value."""
_TIMES: Final = 1 << 16  # series of one table have equal timestamps
LAST_SECONDS: Final = 253_402_300_800
"""Begin of the year 10000: a greater number of seconds is one of milliseconds."""
SeriesKey: TypeAlias = tuple[int, tuple[str, ...]]
"""Number of the file, and the values of its label columns."""


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One line of a file.

    Attributes:
        time: The timestamp as it was written.
        seconds: Unix time.
        value: The value; NaN where it is empty.
        text: The value as it was written.
    """

    time: str
    seconds: float
    value: float
    text: str


@dataclass(slots=True)
class CsvTable:
    """All rows of all files, in the order of the files.

    Attributes:
        labels: Names of the label columns of all files, each once.
        rows: The lines.
        keys: The series of each line.
        columns: By file, its label columns.
        infinite: Number of values that are infinite, such as `+Inf`; they count as missing.
    """

    labels: list[str] = field(default_factory=list)
    rows: list[CsvRow] = field(default_factory=list)
    keys: list[SeriesKey] = field(default_factory=list)
    columns: list[tuple[str, ...]] = field(default_factory=list)
    infinite: int = 0

    def series(self) -> dict[SeriesKey, list[int]]:
        """Return the numbers of the rows of each series, in input order."""
        numbers: dict[SeriesKey, list[int]] = {}
        for number, key in enumerate(self.keys):
            numbers.setdefault(key, []).append(number)
        return numbers

    def time_spellings(self) -> dict[int, str]:
        """A timestamp of each file, as it was written, by number of the file."""
        return {file: row.time for row, (file, _) in zip(self.rows, self.keys, strict=True)}

    def label_values(self, key: SeriesKey) -> list[str]:
        """The values of a series in the order of `labels`; empty where its file has no such column."""
        own = dict(zip(self.columns[key[0]], key[1], strict=True))
        return [own.get(name, "") for name in self.labels]


def read(paths: Sequence[Path]) -> CsvTable:
    """Read all files.

    Raises:
        ConfigurationError: A file cannot be read, or a line of it is wrong; the message names file and line.
    """
    table = CsvTable()
    for number, path in enumerate(paths):
        before = len(table.rows)
        try:
            with path.open(newline="", encoding="utf-8-sig") as file:
                _read(csv.reader(file, strict=True), path, number, table)
        except UnicodeDecodeError:
            raise ConfigurationError(f"{path} is no UTF-8 text; unpack it, or convert it") from None
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
        if len(table.rows) == before:
            raise ConfigurationError(f"{path} has no rows; it needs lines of {TIME},{VALUE} below its header")
    return table


def _read(lines: "Reader", path: Path, number: int, table: CsvTable) -> None:
    try:
        _read_lines(lines, path, number, table)
    except csv.Error as error:
        raise ConfigurationError(f"{path}, line {lines.line_num}: {error}; check its quotes") from None


def _read_lines(lines: "Reader", path: Path, number: int, table: CsvTable) -> None:
    header = [name.strip() for name in next(lines, [])]
    counts = Counter(header)
    for name in (TIME, VALUE, *counts):
        if counts[name] != 1:
            raise ConfigurationError(f"{path} needs one column {name}; its header is {','.join(header) or 'empty'}")
    time_column, value_column = header.index(TIME), header.index(VALUE)
    others = [index for index, name in enumerate(header) if name not in {TIME, VALUE}]
    names = tuple(header[index] for index in others)
    table.columns.append(names)
    table.labels[:] = dict.fromkeys((*table.labels, *names))
    for line in lines:
        if not line:
            continue
        if len(line) != len(header):
            raise ConfigurationError(
                f"{path}, line {lines.line_num}: {len(line)} columns, the header has {len(header)}"
            )
        try:
            row = CsvRow(
                line[time_column], unix_seconds(line[time_column]), _value(line[value_column]), line[value_column]
            )
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {lines.line_num}: {error}") from None
        table.infinite += math.isnan(row.value) and "inf" in row.text.lower()
        table.rows.append(row)
        table.keys.append((number, tuple(line[index] for index in others)))


@lru_cache(maxsize=_TIMES)
def unix_seconds(text: str) -> float:
    """Unix time of `YYYY-MM-DD HH:MM:SS` (UTC), RFC 3339, or a number of seconds.

    Raises:
        ValueError: It is none of them.
    """
    with suppress(ValueError):
        return _seconds(_number(text))
    try:
        time = iso_time(text)
    except ValueError:
        raise ValueError(
            f"{TIME} {text!r} is no YYYY-MM-DD HH:MM:SS, RFC 3339 or Unix time in seconds (not milliseconds)"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def iso_time(text: str) -> datetime:
    """A time as ISO 8601 or RFC 3339, whose letters may be small, writes it.

    Raises:
        ValueError: It is none.
    """
    return datetime.fromisoformat(text.strip().upper())


def _seconds(seconds: float) -> float:
    if not abs(seconds) < LAST_SECONDS:
        raise ValueError
    return seconds


def _number(text: str) -> float:
    """A number; Python alone would also read `1_000`."""
    if "_" in text:
        raise ValueError
    return float(text)


def _value(text: str) -> float:
    if text.strip() in EMPTY:
        return math.nan
    try:
        value = _number(text)
    except ValueError:
        raise ValueError(f"{VALUE} {text!r} is no number") from None
    return value if math.isfinite(value) else math.nan
