"""Writes the table of `docs/verified.md` about features that were measured on a GPU, from `docs/gpu/*.jsonl`.

A file is the result of one GPU day (`make gpu`): a JSON object a step, in which `measured` lists rows of this table. A
feature has one row for each GPU, from the latest day that measured it.

    python -m release.verified            # writes docs/verified.md
    python -m release.verified --check    # exits with 1 where it is not up to date
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = REPOSITORY / "docs" / "gpu"
DOCUMENT: Final = REPOSITORY / "docs" / "verified.md"
BEGIN: Final = "<!-- Made from docs/gpu by `python -m release.verified`: begin -->"
END: Final = "<!-- Made from docs/gpu by `python -m release.verified`: end -->"


class VerifiedError(Exception):
    """The document, or a day's results, cannot be used; the message names file and reason."""


@dataclass(frozen=True, slots=True)
class Day:
    """The results of one GPU day.

    Attributes:
        name: Name of its file.
        date: Its date, ISO 8601.
        gpu: The GPU's name by its driver.
        driver: The driver's version.
        lines: The results of its steps.
    """

    name: str
    date: str
    gpu: str
    driver: str
    lines: tuple[Mapping[str, Any], ...]


def days(folder: Path = RESULTS) -> list[Day]:
    """Read all days, the earliest first.

    Raises:
        VerifiedError: A file does not name its GPU, driver and date.
    """
    return sorted((_day(path) for path in sorted(folder.glob("*.jsonl"))), key=lambda day: (day.date, day.name))


def _day(path: Path) -> Day:
    lines = tuple(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    environment: Mapping[str, Any] = next((line for line in lines if line["step"] == "environment"), {})
    absent = [key for key in ("date", "gpu", "driver") if not environment.get(key)]
    if absent:
        raise VerifiedError(f"{path}: its step environment lacks {', '.join(absent)}")
    return Day(path.name, environment["date"], environment["gpu"], environment["driver"], lines)


def table(found: Iterable[Day]) -> str:
    """Return the text between the marks: a row for each feature and GPU, and a sentence for each day."""
    rows: dict[tuple[str, str], str] = {}
    sentences = []
    for day in found:
        for line in day.lines:
            for row in line.get("measured", ()):
                cells = (row["feature"], row["figure"], day.gpu, day.driver, day.date)
                rows[row["feature"], day.gpu] = "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
        sentences.append(_sentence(day))
    head = ["| feature | figure | GPU | driver | date |", "|---|---|---|---|---|"]
    return "\n".join([*head, *rows.values(), "", *sentences]) + "\n"


def _sentence(day: Day) -> str:
    """Return the day's steps by their result; those that failed with the comparisons that did not hold."""
    failed = "; ".join(_failed(day.lines)) or "none"
    absent = ", ".join(f"`{line['step']}`" for line in day.lines if "skipped" in line or "left_out" in line) or "none"
    held = sum(line["ok"] is True for line in day.lines)
    compared = sum(line["ok"] is not None for line in day.lines)
    return (
        f"* [{day.name}](gpu/{day.name}), {day.gpu}: {held} of {compared} steps held in every comparison. "
        f"Failed: {failed}. Not run: {absent}."
    )


def _failed(lines: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for line in lines:
        if line["ok"] is False:
            reasons = line.get("failed") or [line.get("error", "no reason")]
            yield f"`{line['step']}` ({', '.join(reasons)})"


def rendered(document: str, found: Iterable[Day]) -> str:
    """Return the document with the table between its marks.

    Raises:
        VerifiedError: A mark is missing.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise VerifiedError(f"the document lacks the line {BEGIN if not begin else END!r}")
    return f"{before}{BEGIN}\n{table(found)}{END}{after}"


def main() -> None:
    """Write or check the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="Write nothing; exit with 1 if the table differs.")
    is_check = parser.parse_args().check
    document = DOCUMENT.read_text(encoding="utf-8")
    try:
        current = rendered(document, days())
    except VerifiedError as error:
        sys.exit(str(error))
    if is_check and current != document:
        sys.exit("docs/verified.md differs from docs/gpu: python -m release.verified")
    if not is_check:
        DOCUMENT.write_text(current, encoding="utf-8")


if __name__ == "__main__":
    main()
