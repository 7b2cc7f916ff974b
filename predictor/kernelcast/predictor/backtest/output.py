"""Writes the file of a backtest: one row per input row, and the rows of `--horizon` after each series.

`backtest.command` checks the path before anything is computed, and writes the file at the end.
"""

import csv
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from kernelcast.predictor.backtest.run import Future
from kernelcast.predictor.backtest.table import TIME, VALUE, CsvRow, CsvTable, SeriesKey, iso_time
from kernelcast.wire.errors import ConfigurationError

if TYPE_CHECKING:
    from _csv import Writer

FLAGS: Final = frozenset({"alert"})
"""Columns that are written as 0 or 1."""
Cell: TypeAlias = float | str


def write(
    path: Path,
    table: CsvTable,
    columns: Sequence[str],
    results: Mapping[int, Mapping[str, Cell]],
    futures: Mapping[SeriesKey, Future],
) -> None:
    """Write the file whole, or leave the one that is there.

    Args:
        path: The file.
        table: The input.
        columns: Names of the columns after `value`.
        results: By number of a row, cells by column; NaN and absent ones are left empty.
        futures: By series, what follows its last row.

    Raises:
        ConfigurationError: It cannot be written.
    """
    with csv_file(path) as writer:
        writer.writerow([TIME, *table.labels, VALUE, *columns])
        writer.writerows(_lines(table, columns, results, futures))


@contextmanager
def csv_file(path: Path) -> Iterator["Writer"]:
    """A writer of a CSV file that is written whole, or stays as it is; a pipe or a device is written directly.

    Raises:
        ConfigurationError: It cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("w", newline="", encoding="utf-8") as stream:
                yield csv.writer(stream, lineterminator="\n")
            return
        target = path.resolve()  # of a symbolic link, its target is replaced
        partial = target.with_name(f".kernelcast-backtest.{os.getpid()}")
        try:
            with partial.open("w", newline="", encoding="utf-8") as file:
                yield csv.writer(file, lineterminator="\n")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--output {path} cannot be written: {error.strerror}") from None


def check_output(path: Path, inputs: Iterable[Path], table: CsvTable, columns: Sequence[str]) -> None:
    """Refuse an output that cannot be written or that would lose something, before anything is computed.

    Args:
        path: The file.
        inputs: Files that are read; they are not replaced.
        table: The input.
        columns: Names of the columns beside labels.

    Raises:
        ConfigurationError: The file is an input, its folder is none, or a label has the name of a column.
    """
    try:
        exists, folder = path.exists(), path.resolve().parent
        if exists and any(path.samefile(one) for one in inputs):
            raise ConfigurationError(f"--output {path} is an input too; it would be replaced; choose another file")
        if path.is_dir() or not folder.is_dir():
            raise ConfigurationError(f"--output {path} cannot be written: it is a folder, or its folder does not exist")
        if not os.access(path if exists and not path.is_file() else folder, os.W_OK):
            raise ConfigurationError(f"--output {path} cannot be written: user {os.getuid()} may not; choose another")
    except OSError as error:
        raise ConfigurationError(f"--output {path} cannot be written: {error.strerror}") from None
    for name in table.labels:
        if name in columns:
            raise ConfigurationError(f"the label {name} has the name of a column of the output; rename it in the input")


def _lines(
    table: CsvTable,
    columns: Sequence[str],
    results: Mapping[int, Mapping[str, Cell]],
    futures: Mapping[SeriesKey, Future],
) -> Iterator[list[str]]:
    last = {
        numbers[-1]: max(numbers, key=lambda number: table.rows[number].seconds) for numbers in table.series().values()
    }
    labels: dict[SeriesKey, list[str]] = {}
    for number, (row, key) in enumerate(zip(table.rows, table.keys, strict=True)):
        if key not in labels:
            labels[key] = table.label_values(key)
        cells = results[number]
        yield [row.time, *labels[key], row.text, *(cell(name, cells.get(name, math.nan)) for name in columns)]
        if number in last and key in futures:
            yield from _future(futures[key], table.rows[last[number]], labels[key], columns)


def _future(future: Future, last: CsvRow, labels: Sequence[str], columns: Sequence[str]) -> Iterable[list[str]]:
    for lead in range(len(future.columns["mean"])):
        seconds = last.seconds + (lead + 1) * future.series.interval_seconds
        cells = {name: float(values[lead]) for name, values in future.columns.items()}
        yield [time_text(seconds, last.time), *labels, "", *(cell(name, cells.get(name, math.nan)) for name in columns)]


def time_text(seconds: float, like: str) -> str:
    """A time as the input writes its own.

    Args:
        seconds: Unix time.
        like: A timestamp of the input.
    """
    try:
        float(like)
    except ValueError:
        zone = iso_time(like).tzinfo
        text = datetime.fromtimestamp(seconds, zone or UTC).isoformat(sep="T" if "T" in like.upper() else " ")
        if zone is None:
            return text.removesuffix("+00:00")
        return text.replace("+00:00", "Z") if like.strip().endswith(("Z", "z")) else text
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def cell(name: str, value: Cell) -> str:
    """The text of a cell: empty for NaN, 0 or 1 for a flag, nine digits for a number."""
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return ""
    return str(int(value)) if name in FLAGS else f"{value:.9g}"
