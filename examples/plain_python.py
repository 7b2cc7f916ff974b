"""A program that times its own work and reports it to the probe.

    python examples/plain_python.py --steps 100

Use this form for a C extension, or for a framework that the probe does not know. This one has no GPU, and says so:
its series carry source="simulated".
"""

import argparse
import time

from kernelcast import probe

SIZE = 4096


def smooth(values: list[float], chunk: int) -> list[float]:
    """Replace each value by the mean of itself and its neighbours, a chunk at a time."""
    result: list[float] = []
    for start in range(0, len(values), chunk):
        end = min(start + chunk, len(values))
        part = values[max(start - 1, 0) : end + 1]
        padded = [*([values[0]] if start == 0 else []), *part, *([values[-1]] if end == len(values) else [])]
        result += [sum(padded[at : at + 3]) / 3 for at in range(end - start)]
    return result


def main(arguments: list[str] | None = None) -> None:
    """Smooth for some steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args(arguments).steps

    # "manual": the probe measures nothing by itself, this program reports its own times.
    probe.start("plain-python", method="manual", source="simulated")
    chunk = probe.tunable("chunk", [64, 256, 1024], 256, kernels=["smooth"])
    values = [float(number % 7) for number in range(SIZE)]
    for _ in range(steps):
        with probe.region("smoothing"):
            started_ns = time.perf_counter_ns()
            values = smooth(values, chunk.value)
            probe.observe("smooth", time.perf_counter_ns() - started_ns, grid=SIZE // chunk.value, block=chunk.value)
        probe.step()  # a hint may change chunk.value here, and nowhere else
    print(f"{steps} steps, chunk {chunk.value}, largest value {max(values):.3f}")
    probe.stop()


if __name__ == "__main__":
    main()
