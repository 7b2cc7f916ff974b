"""Compares the locked dependencies with a database of known vulnerabilities: `python -m tests.nightly.audit`.

pip-audit is installed into an environment of its own: the project needs none of its dependencies. Where pip-audit or
the database cannot be had, the exit code is 2 and the last line says that nothing was audited; it never passes then.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

TOOL: Final = "pip-audit==2.9.0"
LOCK: Final = Path(__file__).resolve().parents[2] / "requirements.lock"
VULNERABLE: Final = 1
NOT_AUDITED: Final = 2
SHOWN: Final = 5
"""Packages that were skipped and are named."""


def verdict(exit_code: int, output: str, complaint: str) -> tuple[int, str]:
    """Judge what pip-audit printed.

    Args:
        exit_code: pip-audit's, which only goes into the message.
        output: Its report as JSON.
        complaint: Its standard error.

    Returns:
        The exit code, and the message for a person.
    """
    try:
        packages = json.loads(output)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (complaint or output).strip().rpartition("\n")[2] or "it said nothing"
        reason = f"pip-audit gave no answer (exit code {exit_code}: {last})"
        return NOT_AUDITED, f"nothing was audited: {reason}; run this where the vulnerability database can be reached"
    skipped = [f"{each['name']} ({each['skip_reason']})" for each in packages if "skip_reason" in each]
    if skipped or not packages:
        what = (
            "nothing was" if len(skipped) == len(packages) else f"{len(skipped)} of {len(packages)} packages were not"
        )
        return NOT_AUDITED, f"{what} audited: {'; '.join(skipped[:SHOWN]) or 'the lock names no package'}"
    found = [
        f"{each['name']} {each['version']}: {one['id']}, mended in {', '.join(one['fix_versions']) or 'no version'}"
        for each in packages
        for one in each["vulns"]
    ]
    if found:
        return VULNERABLE, "\n".join([*found, f"{len(found)} known vulnerabilities; raise the versions: make lock"])
    return 0, f"{len(packages)} packages, no known vulnerability"


def main() -> int:
    """Install pip-audit, run it, print the result."""
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True, symlinks=True)
        python = str(Path(directory) / "bin" / "python")
        quiet = ("--quiet", "--disable-pip-version-check")
        installed = subprocess.run(
            (python, "-m", "pip", "install", *quiet, TOOL), capture_output=True, text=True, check=False
        )
        if installed.returncode:
            last = installed.stderr.strip().rpartition("\n")[2]
            sys.stderr.write(f"nothing was audited: {TOOL} could not be installed: {last}\n")
            return NOT_AUDITED
        command = (python, "-m", "pip_audit", "--requirement", str(LOCK), "--require-hashes", "--disable-pip")
        options = ("--format", "json", "--progress-spinner", "off")
        done = subprocess.run((*command, *options), capture_output=True, text=True, check=False)
        code, text = verdict(done.returncode, done.stdout, done.stderr)
    (sys.stderr if code else sys.stdout).write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
