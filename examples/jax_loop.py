"""A JAX loop with JAX's own annotation of steps: each is counted, compilations and waits for data are measured.

    kernelcast probe -- python examples/jax_loop.py

The annotation is what JAX's profiler wants, too. `probe.data` measures the wait for each batch; without it the program
needs no line for the probe.
"""

import argparse
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.profiler import StepTraceAnnotation

from kernelcast import probe

FEATURES = 64
LEARNING_RATE = 0.01


def batches(steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Make a batch for each step."""
    random = np.random.default_rng(1)
    for _ in range(steps):
        inputs = random.random((1024, FEATURES), np.float32)
        yield inputs, inputs.sum(axis=1)


def descend(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    """One step of gradient descent of a linear model."""
    gradient = jax.grad(lambda kept: jnp.mean((inputs @ kept - targets) ** 2))(weights)
    return weights - LEARNING_RATE * gradient


def main(arguments: list[str] | None = None) -> None:
    """Fit the model for some steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    steps = parser.parse_args(arguments).steps

    train = jax.jit(descend)
    weights = jnp.zeros(FEATURES)
    for number, (inputs, targets) in enumerate(probe.data(batches(steps))):
        with StepTraceAnnotation("train", step_num=number):
            weights = train(weights, inputs, targets)
    print(f"{steps} steps, mean weight {float(weights.mean()):.3f}")


if __name__ == "__main__":
    main()
