"""Measures `kernelcast demo` from the command to the first picture: wall time, and processor time of all its processes.

    python benchmarks/first_picture.py
    python benchmarks/first_picture.py --python OTHER/bin/python --starts 3     another installation, such as a wheel's

Run it in a new clone, or with an installation that nobody has started, for a first start; repeat it for a later one.
The processor time tells a quiet machine's wall time: two cores share it. Beside it stand the seconds in which each
process waited for its turn on a core, which a quiet machine has not.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

PICTURE = " s  launches "
"""Stands in the line that the demo prints for a picture where there is no terminal."""


def processes(root: int) -> list[int]:
    """A process and all below it."""
    found, left = [], [root]
    while left:
        found.append(left.pop())
        lists = [path.read_text() for path in Path(f"/proc/{found[-1]}/task").glob("*/children")]
        left += [int(number) for text in lists for number in text.split()]
    return found


def cpu_seconds(pid: int) -> float:
    """Processor time of a process and of those below it that have ended."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(word) for word in words[11:15]) / os.sysconf("SC_CLK_TCK")


def waited_seconds(pid: int) -> float:
    """Seconds in which the threads of a process were ready to run, and no core was free for them."""
    return sum(int(path.read_text().split()[1]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def first_picture(python: str) -> tuple[float, float, float]:
    """Start a demo and end it after its first picture: seconds, processor seconds, seconds without a free core."""
    began = time.perf_counter()
    command = [python, "-u", "-m", "kernelcast.cli", "demo", "--source", "simulate", "--no-servers"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as demo:
        for line in demo.stdout or ():
            if PICTURE in line:
                seconds, running = time.perf_counter() - began, processes(demo.pid)
                result = seconds, sum(map(cpu_seconds, running)), sum(map(waited_seconds, running))
                demo.terminate()
                demo.communicate()
                return result
    raise SystemExit(f"the demo ended with {demo.returncode} before its first picture")


def main() -> None:
    """Print a line for each start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the installation to start; default: this one")
    parser.add_argument("--starts", type=int, default=1)
    options = parser.parse_args()
    for _ in range(options.starts):
        seconds, processor, waited = first_picture(options.python)
        print(f"first picture after {seconds:.1f} s: {processor:.1f} cpu s; without a free core {waited:.1f} s")


if __name__ == "__main__":
    main()
