"""The project's own tests for a GPU, and the demo."""

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.gpu.day.driver import REPOSITORY
from tests.gpu.day.node import run
from tests.gpu.day.report import Skipped, StepReport

TESTS = REPOSITORY / "tests" / "gpu"
SLOW = ("test_demo_on_a_gpu.py",)
"""The step `demo` runs the same."""
FILE_SECONDS = 60.0
DEMO_SECONDS = 25
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|errors?|deselected)")


def tests(report: StepReport) -> None:
    """Run `tests/gpu`, a file at a time; CuPy compiles for minutes when it has no cache."""
    sums: dict[str, int] = {}
    for path in sorted(TESTS.glob("test_*.py")):
        if path.name in SLOW:
            continue
        counts, last = _file(path)
        holds = "failed" not in counts and "error" not in counts
        report.check(path.name, holds, **{path.stem: counts if holds else {**counts, "last": last}})
        for word, count in counts.items():
            sums[word] = sums.get(word, 0) + count
    if set(sums) <= {"skipped", "deselected"}:
        raise Skipped(f"every test skipped: {sums}")
    text = ", ".join(f"{count} {word}" for word, count in sorted(sums.items()))
    report.measured("`tests/gpu`", text)


def _file(path: Path) -> tuple[dict[str, int], list[str]]:
    command = [sys.executable, "-m", "pytest", str(path), "-q", "-rsfE", "--no-header", "-p", "no:cacheprovider"]
    # Where a test hangs, its stack is in the last lines.
    command += ["-v", "-o", f"faulthandler_timeout={FILE_SECONDS / 2:.0f}"]
    # Frameworks of the machine may warn; `filterwarnings` of the project makes an error of it.
    try:
        done = run([*command, "-W", "ignore"], FILE_SECONDS)
    except subprocess.TimeoutExpired as error:
        # Bytes, also where text was asked for.
        printed = b"".join(filter(None, (error.stdout, error.stderr))).decode(errors="replace")
        return {"error": 1}, [f"longer than {FILE_SECONDS:.0f} s", *printed.strip().splitlines()[-30:]]
    counts = {word.rstrip("s") if word == "errors" else word: int(count) for count, word in _COUNT.findall(done.stdout)}
    if done.returncode not in (0, 1, 5):
        counts["error"] = 1
    return counts, (done.stderr + done.stdout).strip().splitlines()[-6:]


def demo(report: StepReport) -> None:
    """The demo finds the GPU, and its example program's kernels are on it."""
    summary = report.folder / "demo.json"
    command = [sys.executable, "-m", "kernelcast.cli", "demo", "--source", "nvml", "--no-servers"]
    done = run([*command, "--duration", str(DEMO_SECONDS), "--summary", str(summary)], 110)
    report.check("it ends well", done.returncode == 0, last=(done.stdout + done.stderr).strip().splitlines()[-8:])
    content = json.loads(summary.read_text()) if summary.exists() else {}
    launches = content.get("kernels", {}).get("launches", 0)
    report.check("kernels of the GPU", launches > 0, launches=launches, dead_letters=content.get("dead_letters"))
    if done.returncode == 0 and launches:
        report.measured("`kernelcast demo` on a live GPU", f"{launches:,} launches in {DEMO_SECONDS} s")
