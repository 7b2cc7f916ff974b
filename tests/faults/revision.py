"""Which revision of the project runs."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def revision() -> str:
    """The commit, with "+" where files differ from it; "unknown" outside a clone."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"
