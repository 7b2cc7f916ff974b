"""Frameworks and examples: the probe sees each kernel that they launch."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from tests.gpu.day import names
from tests.gpu.day.driver import REPOSITORY
from tests.gpu.day.needs import missing
from tests.gpu.day.node import Exporter, exporter, program, run, total
from tests.gpu.day.report import StepReport

from kernelcast.wire.kernels import normalise

EXAMPLES = (
    ("plain_python.py", ("--steps", "50"), ()),
    ("cupy_saxpy.py", ("--steps", "500"), ("gpu", "module:cupy")),
    ("pytorch_training.py", ("--epochs", "1"), ("gpu", "module:torch")),
    ("cnn.py", ("--epochs", "2"), ("gpu", "module:torch")),
    ("jax_training.py", ("--steps", "50"), ("gpu", "module:jax")),
)
"""File, arguments and requirements."""
EXAMPLE_SECONDS = 40.0


def examples(report: StepReport) -> None:
    """Run each program of `examples/` below the probe with CUPTI."""
    ran, absent, before = [], {}, 0.0
    with exporter(nvml="off" if report.rehearsal else "auto") as node:
        for file, arguments, needs in EXAMPLES:
            reason = missing(needs)
            if reason:
                absent[file] = reason
                continue
            name = Path(file).stem
            below = [sys.executable, "-m", "kernelcast.probe", *node.probe(name), "--"]
            command = [*below, sys.executable, str(REPOSITORY / "examples" / file), *arguments]
            try:
                done = run(command, EXAMPLE_SECONDS, {} if report.rehearsal else names.CUPTI)
            except subprocess.TimeoutExpired:
                report.check(file, False, **{name: f"longer than {EXAMPLE_SECONDS:.0f} s"})
                continue
            last = (done.stderr or done.stdout).strip().splitlines()[-1:]
            # Its totals are on the page a second after its end.
            after = _launches_beyond(node, before)
            is_seen = after > before
            report.check(file, done.returncode == 0 and is_seen, **{name: {"launches": after - before, "last": last}})
            before = after
            ran.append(file)
    report.figures(absent=absent)
    if not report.rehearsal and ran:
        report.measured("`examples/`, below the probe with CUPTI", f"ran to their end: {', '.join(sorted(ran))}")


def _launches_beyond(node: Exporter, before: float) -> float:
    """Return the launches on a page once there are more than before, or after some seconds."""
    return total(node.settled(lambda page: total(page, names.LAUNCHES) > before, 3.0), names.LAUNCHES)


def compiled(report: StepReport) -> None:
    """`torch.compile` with graphs: launches by the probe are those of PyTorch's profiler."""
    ours = program("training", "compiled", "records", seconds=90)
    theirs = program("training", "compiled", "profiler", seconds=60)
    normalised: Counter[str] = Counter()
    for name, count in theirs["launches"].items():
        normalised[normalise(name)] += count
    same = ours["launches"] == normalised and sum(normalised.values()) > 0
    report.check("the probe and PyTorch's profiler agree", same, ours=ours, theirs=theirs)
    report.check("the compiled result is right", ours["result_is_right"])
    if same:
        text = f"{sum(ours['launches'].values()):,} launches, {ours['graph_launches']:,} by graphs, as in its profiler"
        report.measured("`torch.compile(mode='reduce-overhead')`", text)


def jax(report: StepReport) -> None:
    """A jitted function: each of its kernels is launched once a call."""
    _every_call(report, program("jax_programs", "jit", seconds=60), "JAX, a jitted function")


def pallas(report: StepReport) -> None:
    """A kernel of Pallas is launched once a call."""
    _every_call(report, program("jax_programs", "pallas", seconds=60), "JAX, a kernel of Pallas")


def tensorflow(report: StepReport) -> None:
    """A function of TensorFlow: each of its kernels is launched once or several times a call."""
    _every_call(report, program("tensorflow_steps", seconds=60), "TensorFlow, a function")


def _every_call(report: StepReport, found: dict[str, Any], feature: str) -> None:
    counts, calls = found["launches"], found["calls"]
    exact = bool(counts) and all(count % calls == 0 for count in counts.values())
    report.figures(**found)
    report.check("each kernel as often as the function was called", exact)
    report.check("no record was lost", found["lost"] == 0)
    if exact:
        text = f"{calls} calls, {sum(counts.values()):,} launches of {len(counts)} kernels, exact"
        report.measured(feature, text)
