"""Writes the results of a day to `docs/gpu/<date>-<model>.jsonl`, without paths, names and numbers of the machine.

    python -m tests.gpu.day.publish RESULTS.jsonl [SECOND.jsonl …]

Of each step the latest line counts. `python -m release.verified` makes the table of `docs/verified.md` from the files.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.gpu.day.driver import REPOSITORY, latest, read_lines
from tests.gpu.day.plan import PlanError

FOLDER: Final = REPOSITORY / "docs" / "gpu"
_PATH: Final = re.compile(r"(?<![\w.:/])/(?:[\w.@+-]+/)+([\w.@+-]+)")
_UUID: Final = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}")
_MODEL_END: Final = re.compile(r"[ -](?:\d+GB|SXM|PCIe|HBM|NVL)\S*.*$", re.IGNORECASE)


def scrubbed(value: Any) -> Any:
    """Return a value in which each absolute path is its last part, and no GPU's identifier is left."""
    match value:
        case str():
            return _UUID.sub(r"\1-…", _PATH.sub(r"…/\1", value))
        case dict():
            return {scrubbed(key): scrubbed(part) for key, part in value.items()}
        case list():
            return [scrubbed(part) for part in value]
        case _:
            return value


def model(gpu: str) -> str:
    """Return a GPU's model for a file name: `h100` for `NVIDIA H100 80GB HBM3`."""
    short = _MODEL_END.sub("", re.sub(r"NVIDIA|GeForce|Tesla", "", gpu).strip())
    return re.sub(r"[^a-z0-9]+", "-", short.lower()).strip("-") or "gpu"


def publish(lines: Iterable[Mapping[str, Any]], folder: Path = FOLDER) -> Path:
    """Write the latest line of each step; returns the file.

    Raises:
        PlanError: The environment's line, which names GPU and date, is missing.
    """
    kept = latest(lines)
    environment = kept.get("environment", {})
    if not environment.get("gpu") or not environment.get("date"):
        raise PlanError("the results have no line of the step environment with a GPU and a date")
    path = folder / f"{environment['date']}-{model(environment['gpu'])}.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(scrubbed(line), ensure_ascii=False) + "\n" for line in kept.values()))
    return path


def main() -> None:
    """Publish the results named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+", type=Path, help="results.jsonl of a day, then of its second run")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="default: docs/gpu")
    options = parser.parse_args()
    try:
        path = publish((line for each in options.results for line in read_lines(each)), options.folder)
    except PlanError as error:
        sys.exit(str(error))
    sys.stdout.write(f"{path}; next: python -m release.verified\n")


if __name__ == "__main__":
    main()
