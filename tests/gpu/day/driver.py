"""Runs the steps of a day, each in a process of its own, and writes one JSON line a step."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.gpu.day.plan import Step
from tests.gpu.day.report import merged

REPOSITORY: Final = Path(__file__).resolve().parents[3]
RESULTS: Final = "results.jsonl"
FINDINGS: Final = "findings"
LEAST_SECONDS: Final = 5.0
"""Time that must be left for a step to begin."""
TERMINATE_SECONDS: Final = 2.0
"""Time between SIGTERM and SIGKILL."""
MAX_REASON_CHARACTERS: Final = 400


class Day:
    """Runs steps one after the other; no step can end the day.

    Args:
        folder: Receives `results.jsonl`, each step's output and the files that steps keep.
        seconds: Longest day. A step that would begin later is left out, one that runs then is ended.
        must_run: Names of the steps that fail where they would skip.
        image: Name of the machine image that `must_run` belongs to.
        rehearsal: Whether doubles take the place of the GPU.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seconds: float,
        must_run: frozenset[str] = frozenset(),
        image: str = "",
        rehearsal: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._must_run = must_run
        self._image = image
        self._rehearsal = rehearsal
        self._clock = clock
        self._began = clock()
        self._ends = self._began + seconds
        (folder / FINDINGS).mkdir(parents=True, exist_ok=True)

    def run(self, steps: Iterable[Step]) -> list[dict[str, Any]]:
        """Run the steps; returns their lines, which are in `results.jsonl` as soon as each step has ended."""
        lines = []
        for step in steps:
            line = self._line(step)
            with (self._folder / RESULTS).open("a") as file:
                file.write(json.dumps(line, default=str) + "\n")
            sys.stdout.write(f"{described(line)}\n")
            sys.stdout.flush()
            lines.append(line)
        return lines

    def _line(self, step: Step) -> dict[str, Any]:
        began = self._clock()
        left = self._ends - began
        if left < LEAST_SECONDS:
            return self._timed(step, began, {"ok": None, "left_out": f"no time: {max(0.0, left):.0f} s were left"})
        findings = self._folder / FINDINGS / f"{step.name}.jsonl"
        findings.unlink(missing_ok=True)
        end = self._run(step, findings, min(step.limit_seconds, left))
        found = merged(findings.read_text(errors="replace").splitlines() if findings.exists() else ())
        figures = found.pop("figures")
        has_ended = found.pop("ended", False) and not end
        if not has_ended and left < step.limit_seconds and end.startswith("ended after"):
            found |= {"ok": None, "left_out": f"the day's time was over: {end}"}
        elif not has_ended:
            found |= {"ok": False, "error": end or "it ended before it was done"}
        elif "skipped" in found:
            found |= self._skipped(step, found["skipped"], found)
        return self._timed(step, began, {**found, **figures})

    def _skipped(self, step: Step, reason: str, found: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a step that skipped: a failure where it must run, or where a check had failed."""
        if step.name in self._must_run:
            return {"ok": False, "error": f"must run on {self._image}: {reason}"}
        return {"ok": False if "failed" in found else None}

    def _timed(self, step: Step, began: float, result: Mapping[str, Any]) -> dict[str, Any]:
        now = self._clock()
        times = {"at": round(now - self._began, 1), "seconds": round(now - began, 1)}
        return {"step": step.name, "ok": result["ok"], **times, **{k: v for k, v in result.items() if k != "ok"}}

    def _run(self, step: Step, findings: Path, limit_seconds: float) -> str:
        """Run a step's process and end all processes that it left; returns why it did not end well, or nothing."""
        work = {
            "function": step.function,
            "needs": step.needs,
            "has_double": step.has_double,
            "rehearsal": self._rehearsal,
            "findings": str(findings),
            "folder": str(self._folder),
        }
        output = self._folder / FINDINGS / f"{step.name}.log"
        command = [sys.executable, "-m", "tests.gpu.day.child", json.dumps(work)]
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with output.open("wb") as file:
            process = subprocess.Popen(
                command, cwd=REPOSITORY, env=environ, stdout=file, stderr=file, start_new_session=True
            )
        try:
            code = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            _signal(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TERMINATE_SECONDS)
            return f"ended after {limit_seconds:.0f} s, its limit{_last_line(output)}"
        finally:
            _signal(process, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # one that hangs in the driver cannot be killed
                process.wait(TERMINATE_SECONDS)
        if code < 0:
            return f"killed by {signal.Signals(-code).name}{_last_line(output)}"
        return f"exit code {code}{_last_line(output)}" if code else ""


def _signal(process: "subprocess.Popen[bytes]", number: signal.Signals) -> None:
    """Send a signal to a step's process and all that it started, as far as they are there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _last_line(output: Path) -> str:
    lines = output.read_text(errors="replace").strip().splitlines()
    return f"; last output: {lines[-1][:MAX_REASON_CHARACTERS]}" if lines else ""


def described(line: Mapping[str, Any]) -> str:
    """Return a line for people about a step's result."""
    reason = next((str(line[key]) for key in ("error", "skipped", "left_out") if line.get(key)), "")
    word = {True: "ok", False: "FAILED"}.get(line["ok"], "skipped" if "skipped" in line else "-")
    if "left_out" in line:
        word = "left out"
    failed = f"does not hold: {', '.join(line['failed'])}" if line.get("failed") else ""
    return f"{line['at']:6.1f} s  {word:8}  {line['step']:20} {'; '.join(filter(None, [failed, reason]))}".rstrip()


def latest(lines: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return each step's latest line by its name; a run that left a step out leaves its earlier line in place."""
    kept: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        if line["step"] not in kept or "left_out" not in line:
            kept[line["step"]] = line
    return kept


def second(steps: Sequence[Step], lines: Iterable[Mapping[str, Any]]) -> list[Step]:
    """Return the steps of a second run: those that failed or were left out, and the environment, always first."""
    before = latest(lines)
    return [
        step
        for position, step in enumerate(steps)
        if position == 0 or (line := before.get(step.name)) is None or line["ok"] is False or "left_out" in line
    ]


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the lines of a `results.jsonl`."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
