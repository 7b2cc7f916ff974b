"""Runs fault schedules of four ranks: `python -m tests.faults.ranks.run --schedules 190 --sockets 4 --gloo 10`.

In memory the ranks are threads; with sockets and gloo they are processes, and half of the jobs lose one to SIGKILL. A
run with a finding ends with 1; a schedule can be run again by its seed and number: `--first`.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.faults.ranks import real, schedules

say = partial(print, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the schedules; return 1 if one breaks an invariant."""
    parser = argparse.ArgumentParser("python -m tests.faults.ranks.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--schedules", type=int, default=190, help="schedules in memory; default: 190")
    parser.add_argument("--sockets", type=int, default=0, help="jobs of processes over sockets; default: 0")
    parser.add_argument("--gloo", type=int, default=0, help="jobs over PyTorch's gloo; default: 0")
    parser.add_argument("--seed", default="ranks", help="seed of the schedules")
    parser.add_argument("--first", type=int, default=0, help="number of the first schedule")
    options = parser.parse_args(arguments)
    began, broken = time.monotonic(), 0
    numbers = {"memory": options.schedules, "socket": options.sockets, "gloo": options.gloo}
    with tempfile.TemporaryDirectory() as folder:
        for kind, count in numbers.items():
            for number in range(options.first, options.first + count):
                seed = f"{options.seed}/{number}"
                found = (
                    schedules.findings(seed)
                    if kind == "memory"
                    else real.findings(f"{kind}/{seed}", Path(folder), kind=kind)
                )
                broken += bool(found)
                for sentence in found:
                    say(f"{kind} {number}: {sentence}")
    ran = ", ".join(f"{count} {kind}" for kind, count in numbers.items())
    say(f"{ran}: {broken} with a finding, {time.monotonic() - began:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
