"""A program that reports an exact number of launches: `python program.py PROGRAM KERNEL LAUNCHES SECONDS [HOLD]`.

Durations are 1000, 2000, … 10000 ns in turn, so the sum is known too. After the last launch it waits until the file
HOLD appears, where one is given, and ends.
"""

import sys
import time
from pathlib import Path

import kernelcast.probe


def durations_ns(launches: int) -> list[int]:
    """Its reports, in order."""
    return [1000 * (1 + number % 10) for number in range(launches)]


def main(program: str, kernel: str, launches: int, seconds: float, hold: str = "") -> None:
    """Report, wait, end."""
    kernelcast.probe.start(program=program, source="simulated")
    values = durations_ns(launches)
    batch = max(1, launches // max(1, int(seconds * 20)))
    for begin in range(0, launches, batch):
        for value in values[begin : begin + batch]:
            kernelcast.probe.observe(kernel, value, grid="64x1x1", block="128x1x1")
        time.sleep(seconds * batch / launches)
    while hold and not Path(hold).exists():
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), *sys.argv[5:6])
