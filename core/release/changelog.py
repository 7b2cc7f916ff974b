"""Prints the changelog of one release, such as for its announcement; `release.wheels` asks it for the release's date.

python -m release.changelog [VERSION]        # without one: the version in pyproject.toml
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
UNRELEASED: Final = "unreleased"
_HEADING: Final = re.compile(r"^## \[(?P<version>[^\]]+)\] - (?P<date>\d{4}-\d\d-\d\d|unreleased)$", re.MULTILINE)


class ChangelogError(Exception):
    """The changelog has no such release."""


def version() -> str:
    """The version in pyproject.toml."""
    found: str = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return found


def release_date(text: str, release: str) -> str:
    """The date of a release, or `unreleased`.

    Raises:
        ChangelogError: The changelog does not have it.
    """
    dates = {found["version"]: found["date"] for found in _HEADING.finditer(text)}
    if release not in dates:
        raise ChangelogError(f"CHANGELOG.md has no heading `## [{release}] - DATE`; it has {', '.join(dates)}")
    return dates[release]


def notes(text: str, release: str) -> str:
    """The changes of a release, without their heading.

    Raises:
        ChangelogError: The changelog does not have it.
    """
    release_date(text, release)
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    (found,) = [
        text[heading.end() : end] for heading, end in zip(headings, ends, strict=True) if heading["version"] == release
    ]
    return found.strip() + "\n"


def main() -> None:
    """Print the notes."""
    release = sys.argv[1] if len(sys.argv) > 1 else version()
    try:
        sys.stdout.write(notes((REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8"), release))
    except ChangelogError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
