"""The commit that this installation was built from, for `kernelcast --version`.

`hatch_build.py` loads this file by its path, so it imports the standard library alone.
"""

import subprocess
from pathlib import Path
from typing import Final

COMMIT_FILE: Final = "commit.txt"
"""Beside this file in a wheel and in a source distribution; written by the build."""
CHANGED: Final = " with changes"
"""Follows the commit of a checkout that has changes which are not committed."""
GIT_SECONDS: Final = 5


def commit(package: Path = Path(__file__).parent) -> str:
    """The commit, shortened to 12 digits; empty where it is not known.

    Args:
        package: The folder of `kernelcast.cli`, in an installation or in a checkout.
    """
    kept = package / COMMIT_FILE
    if kept.is_file():
        return kept.read_text(encoding="utf-8").strip()
    return commit_of_checkout(package.parents[2]) if len(package.parents) > 2 else ""


def commit_of_checkout(root: Path) -> str:
    """The commit that is checked out, and whether files differ from it; empty where `root` is no checkout of its own.

    A source distribution that is unpacked inside the checkout of another project has no commit of that project.
    """
    if not (root / ".git").exists():
        return ""
    found = _git(root, "rev-parse", "--short=12", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{found}{CHANGED}" if found and changed else found


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=GIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
