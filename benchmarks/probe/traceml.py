"""Small PyTorch trainings without a tool, below kernelcast and below TraceML: `python -m benchmarks.probe.traceml`.

Runs take turns. A time is that of the training's own thread a step, in the least block of 50 steps of all rounds: a
loaded machine adds to the others. TraceML starts a program by torchrun, below which Hugging Face's Trainer wraps the
model for data-parallel training; `torchrun` is that without a tool. The second part of the output is what each tool
shows.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.support.service.packages import FRAMEWORKS, TRACEML, environment, folder_with, install

PROGRAM: Final = Path(__file__).with_name("training.py")
PYTHON: Final = str(FRAMEWORKS.folder / "bin" / "python")
PROGRAMS: Final = ("plain", "lightning", "hugging_face")
TOOLS: Final = ("none", "torchrun", "kernelcast", "TraceML")


def command(tool: str, program: str, steps: int, folder: Path) -> list[str]:
    """The command line of a run."""
    arguments = [program, str(steps)]
    if tool == "torchrun":
        return [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node=1", str(PROGRAM), *arguments]
    if tool == "kernelcast":
        report = ["--report", str(folder / "report.json")]
        return [PYTHON, "-m", "kernelcast.probe", *report, "--", PYTHON, str(PROGRAM), *arguments]
    if tool.startswith("TraceML"):
        run = [PYTHON, "-m", "traceml_ai.launcher.cli", "run", str(PROGRAM), "--logs-dir", str(folder)]
        return [*run, "--args", *arguments]
    return [PYTHON, str(PROGRAM), *arguments]


def run(tool: str, program: str, steps: int) -> tuple[dict[str, Any], str]:
    """The times that a run prints, and what its tool shows."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        environ = environment(KERNELCAST_SOCKET=str(folder / "none.sock"), OMP_NUM_THREADS="1")
        environ["PYTHONPATH"] = os.pathsep.join((environ["PYTHONPATH"], str(folder_with(TRACEML))))
        done = subprocess.run(
            command(tool, program, steps, folder), env=environ, cwd=folder, capture_output=True, text=True, check=True
        )
    text = done.stdout + done.stderr
    times = next(line for line in text.splitlines() if line.startswith('{"steps"'))
    found: dict[str, Any] = json.loads(times)
    return found, "\n".join(line for line in text.splitlines() if line.startswith(("|", "+-")))


def contests() -> Iterator[tuple[str, str]]:
    """Each tool with each program, and TraceML's own lines in a loop."""
    for program in PROGRAMS:
        for tool in TOOLS:
            yield tool, program
    yield "TraceML with its lines", "plain_traceml"


def main() -> None:
    """Print the table, then what each tool has shown last."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    for packages in (FRAMEWORKS, TRACEML):
        if reason := install(packages):
            parser.error(reason)
    least: dict[tuple[str, str], float] = {}
    shown: dict[tuple[str, str], str] = {}
    for _ in range(options.rounds):
        for contest in contests():
            found, shown[contest] = run(*contest, options.steps)
            least[contest] = min(found["thread_us"], least.get(contest, found["thread_us"]))
    for (tool, program), thread_us in least.items():
        without = least["none", program.removesuffix("_traceml")]
        print(f"{program:14} {tool:24} {thread_us:8.0f} us a step  {thread_us - without:+8.0f} us")
    for (tool, program), text in shown.items():
        if text:
            print(f"\n{program}, {tool}\n{text}")


if __name__ == "__main__":
    main()
