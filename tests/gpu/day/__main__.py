"""A day on a GPU: kernelcast's figures beside those of programs whose work is known. `make gpu` runs it.

    python -m tests.gpu.day [STEP …] [--output FOLDER] [--image NAME] [--second RESULTS]

Exit codes: 0, 1 where a step failed, 2 where there is no GPU or an argument is wrong.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.gpu.day import plan
from tests.gpu.day.driver import REPOSITORY, RESULTS, Day, latest, read_lines, second
from tests.gpu.day.needs import NO_GPU
from tests.gpu.day.publish import publish

PROBE_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the day; returns the exit code."""
    options = _parser().parse_args(arguments)
    earlier: list[dict[str, Any]] = []
    try:
        chosen = plan.read(options.list)
        must_run = chosen.required(options.image)
        steps = chosen.chosen(options.steps)
        if options.second:
            steps = second(steps, earlier := read_lines(options.second))
    except (plan.PlanError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    reason = "" if options.rehearse else _no_gpu()
    if reason:
        sys.stderr.write(f"{reason}. A GPU day needs one; --rehearse runs it with doubles.\n")
        return 2
    if not options.second:
        (options.output / RESULTS).unlink(missing_ok=True)
    seconds = options.seconds or (chosen.second_seconds if options.second else chosen.seconds)
    day = Day(options.output, seconds=seconds, must_run=must_run, image=options.image, rehearsal=options.rehearse)
    lines = day.run(steps)
    if options.publish and not options.rehearse:
        sys.stdout.write(f"{publish([*earlier, *lines], options.publish)}\n")
    counts = {
        "held": sum(line["ok"] is True for line in lines),
        "failed": sum(line["ok"] is False for line in lines),
        "skipped": sum("skipped" in line and line["ok"] is None for line in lines),
        "left out": sum("left_out" in line for line in lines),
    }
    sys.stdout.write(f"{', '.join(f'{count} {word}' for word, count in counts.items())} of {len(lines)} steps\n")
    return 1 if any(line["ok"] is False for line in latest(lines).values()) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.day", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("steps", nargs="*", metavar="STEP", help="run these steps alone; default: all of the list")
    output = Path(os.environ.get("OUT", REPOSITORY / "build" / "gpu-day"))
    parser.add_argument("--output", type=Path, default=output, help="folder of the results; default: $OUT")
    parser.add_argument("--publish", type=Path, metavar="FOLDER", help="write <date>-<model>.jsonl there as well")
    parser.add_argument("--image", default="", metavar="NAME", help="machine image of the list: its steps must run")
    parser.add_argument("--second", type=Path, metavar="RESULTS", help="run what failed or was left out in this file")
    parser.add_argument("--seconds", type=float, help="longest day; default: that of the list")
    parser.add_argument("--rehearse", action="store_true", help="without a GPU, with doubles where there are some")
    parser.add_argument("--list", type=Path, default=plan.LIST, help="list of steps; default: day.json")
    return parser


def _no_gpu() -> str:
    """Return why no GPU can be used; asked in a process of its own, so that this one has no driver loaded."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.gpu.day.needs"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{NO_GPU}the driver did not answer within {PROBE_SECONDS:.0f} s"
    return done.stdout if done.returncode == 0 else f"{NO_GPU}asking the driver ended with {done.returncode}"


if __name__ == "__main__":
    sys.exit(main())
