"""A program that reports launches until it is stopped: `python program.py PROGRAM BEGUN DONE STOP`.

It writes to the file BEGUN how many launches it is about to have reported, and to DONE how many it has; once the file
STOP exists it reports no more, and waits to be killed. It uses the probe alone, so it runs with any revision.
"""

import sys
import time
from pathlib import Path

import kernelcast.probe

KERNEL = "void gemm<float>(float*, int)"
PAUSE_SECONDS = 0.1


def main(program: str, begun: Path, done: Path, stop: Path) -> None:
    """Report."""
    kernelcast.probe.start(program=program, source="simulated")
    launches = 0
    while not stop.exists():
        written(begun, launches + 5)
        for _ in range(5):
            kernelcast.probe.observe(KERNEL, 1000, grid="64x1x1", block="128x1x1")
        launches += 5
        written(done, launches)
        time.sleep(PAUSE_SECONDS)
    while True:
        time.sleep(60)


def written(path: Path, number: int) -> None:
    """Replace a file's content at once."""
    new = path.with_suffix(".new")
    new.write_text(str(number))
    new.replace(path)


if __name__ == "__main__":
    main(sys.argv[1], *map(Path, sys.argv[2:]))
