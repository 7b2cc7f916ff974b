"""JAX programs whose steps are JAX's own annotations: prints the steps made beside those counted, and compilations."""

import json
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.profiler import StepTraceAnnotation

from kernelcast import probe
from kernelcast.probe.tuned.waits import MOST_STEPS
from kernelcast.wire.frames import PHASES

LEFT_TO_TUNE = MOST_STEPS + 100
"""Steps of which some have another size: a space watches steps first, more of them where the machine is busy."""
LOOPS: dict[str, Callable[[], int]] = {}


def loop(function: Callable[[], int]) -> Callable[[], int]:
    LOOPS[function.__name__] = function
    return function


def made_step() -> Callable[[Any, Any], Any]:
    @jax.jit  # type: ignore[untyped-decorator]
    def step(weights: Any, inputs: Any) -> Any:
        gradient = jax.grad(lambda kept: jnp.mean(jnp.square(inputs @ kept)))(weights)
        return weights - 0.1 * gradient

    return step  # type: ignore[no-any-return]


STEP = made_step()
WEIGHTS, INPUTS = jnp.ones(4), jnp.ones((8, 4))
SPACE = probe.space("size", {"size": [1, 2, 4, 8]}, start={"size": 8}, per="step", share=1e6)


@loop
def plain() -> int:
    weights = WEIGHTS
    for number in range(7):
        with StepTraceAnnotation("train", step_num=number):
            weights = STEP(weights, INPUTS)
    return 7


@loop
def with_data() -> int:
    for number, batch in enumerate(probe.data(INPUTS for _ in range(5))):
        with StepTraceAnnotation("train", step_num=number):
            STEP(WEIGHTS, batch)
    return 5


@loop
def until_the_data_end() -> int:
    batches = iter([INPUTS] * 4)
    try:
        for number in range(9):
            with StepTraceAnnotation("train", step_num=number):
                STEP(WEIGHTS, next(batches))
    except StopIteration:
        pass
    return 4


@loop
def evaluated() -> int:
    for epoch in range(2):
        for number in range(3):
            with StepTraceAnnotation("train", step_num=3 * epoch + number):
                STEP(WEIGHTS, INPUTS)
        for number in range(4):
            with StepTraceAnnotation(name="Evaluation", step_num=number):
                jnp.sum(STEP(WEIGHTS, INPUTS)).block_until_ready()
    return 6


@loop
def within_an_epoch() -> int:
    for epoch in range(2):
        with StepTraceAnnotation("epoch", step_num=epoch):
            for number in range(3):
                with StepTraceAnnotation("train", step_num=number):
                    STEP(WEIGHTS, INPUTS)
    return 6


@loop
def compiled_again() -> int:
    for number in range(4):
        with StepTraceAnnotation("train", step_num=number):
            STEP(WEIGHTS, np.ones((16 + number, 4), np.float32))
    return 4


@loop
def compiled_within_a_trace() -> int:
    @jax.jit  # type: ignore[untyped-decorator]
    def step(inputs: Any) -> Any:
        with jax.ensure_compile_time_eval():
            size = float(jnp.linalg.norm(jnp.arange(7.0)))
        return inputs * size

    with StepTraceAnnotation("train", step_num=0):
        step(INPUTS)
    return 1


@loop
def tuned() -> int:
    for number in range(300):
        with StepTraceAnnotation("train", step_num=number):
            if SPACE.size != 8:
                return -1
    return 300


@loop
def explicit() -> int:
    """The last one: from its first explicit step on no other is counted, and a space changes."""
    moved = set()
    for number in range(LEFT_TO_TUNE):
        with StepTraceAnnotation("train", step_num=number):
            moved.add(SPACE.size)
        if number > 1:
            probe.step(items=8)
    return LEFT_TO_TUNE if len(moved) > 1 else -1


def cached_calls() -> dict[str, int]:
    """Calls of our functions, and compilations that JAX tells, while a function is called that is compiled already."""
    ours, told = 0, 0

    def listener(*_arguments: object, **_named: object) -> None:
        nonlocal told
        told += 1

    def profile(frame: Any, event: str, _argument: object) -> None:
        nonlocal ours
        ours += event == "call" and "kernelcast/probe/" in frame.f_code.co_filename

    STEP(WEIGHTS, INPUTS)
    jax.monitoring.register_event_duration_secs_listener(listener)
    jax.monitoring.register_scalar_listener(listener)
    sys.setprofile(profile)
    for _ in range(1_000):
        STEP(WEIGHTS, INPUTS)
    sys.setprofile(None)
    cached = {"ours": ours, "told": told}
    sys.setprofile(profile)
    made_step()(WEIGHTS, INPUTS)
    sys.setprofile(None)
    return {**cached, "ours_compiled": ours, "told_compiled": told}


def main() -> None:
    running = probe.start("loops", source="cpu", method="manual")
    progress = running.recorder.progress
    plain()
    found: dict[str, Any] = {"cached": cached_calls()}
    for name, function in LOOPS.items():
        before = progress.steps, progress.items, progress.compilations, progress.compile_ns, list(progress.phase_ns)
        began_ns = perf_counter_ns()
        made = function()
        took_ns = perf_counter_ns() - began_ns
        found[name] = {
            "made": made,
            "steps": progress.steps - before[0],
            "items": progress.items - before[1],
            "compilations": progress.compilations - before[2],
            "compile_ns": progress.compile_ns - before[3],
            "took_ns": took_ns,
            "phases": sorted(
                phase for phase, ns, earlier in zip(PHASES, progress.phase_ns, before[4], strict=True) if ns > earlier
            ),
        }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
