"""The project's present revision, for records of schedules."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def revision() -> str:
    """The commit, with "+" where files differ from it; "unknown" outside a clone."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"
