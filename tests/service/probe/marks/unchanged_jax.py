"""What a program can see of JAX: `python unchanged_jax.py off|on FOLDER` prints types, errors, traces and results."""

import inspect
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelcast import probe

SWITCH, FOLDER = sys.argv[1:]
if SWITCH == "on":
    probe.start("unchanged", source="cpu", method="manual")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.profiler import StepTraceAnnotation  # noqa: E402


class Named(StepTraceAnnotation):  # type: ignore[misc]
    def __init__(self, number: int) -> None:
        super().__init__("train", step_num=number)

    def __enter__(self) -> Any:
        return super().__enter__()


def fails(work: Callable[[], object]) -> list[str]:
    try:
        work()
    except Exception as error:  # noqa: BLE001  each is shown
        frames = traceback.extract_tb(error.__traceback__)
        return [str(error), *(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames)]
    return []


def within(annotation: Any) -> None:
    with annotation as entered:
        assert entered is annotation
        raise ZeroDivisionError


@jax.jit  # type: ignore[untyped-decorator]
def step(weights: Any) -> Any:
    return weights - 0.1 * jax.grad(lambda kept: jnp.sum(kept**2))(weights)


weights = jnp.arange(3.0)
with jax.profiler.trace(FOLDER):
    for number in range(3):
        with StepTraceAnnotation("train_of_this_test", step_num=number):
            weights = step(weights)
(trace,) = Path(FOLDER).rglob("*.xplane.pb")
functions = [getattr(StepTraceAnnotation, name) for name in ("__init__", "__enter__", "__exit__")]
sys.stdout.write(
    json.dumps(
        {
            "errors": [
                fails(StepTraceAnnotation),
                fails(lambda: StepTraceAnnotation(1)),
                fails(lambda: StepTraceAnnotation("a", "b")),
                fails(lambda: StepTraceAnnotation("a").__exit__()),
                fails(lambda: within(StepTraceAnnotation("train", step_num=1))),
                fails(lambda: within(StepTraceAnnotation("eval", step_num=1))),
                fails(lambda: within(Named(1))),
                fails(lambda: step(weights, weights)),
            ],
            "types": [str(kind) for kind in Named.__mro__],
            "signature": str(inspect.signature(StepTraceAnnotation)),
            "names": [one.__name__ for one in functions],
            "documentation": [one.__doc__ for one in functions],
            "attributes": list(vars(Named(1))),
            "exits": [Named(1).__exit__(None, None, None), StepTraceAnnotation("a").__enter__().__class__.__name__],
            "traced": trace.read_bytes().count(b"train_of_this_test"),
            "program": step.lower(weights).as_text(),
            "compiled": step._cache_size(),
            "weights": weights.tolist(),
        }
    )
)
