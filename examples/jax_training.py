"""A JAX training step as a region.

    KERNELCAST_CUPTI=1 python examples/jax_training.py --steps 200

With KERNELCAST_CUPTI=1 the probe sees every kernel that XLA launches; without it, the region only. JAX returns before
the device is done, so the region waits for the result: otherwise its wall time would be that of the call alone.
"""

import argparse

import jax
import jax.numpy as jnp

from kernelcast import probe

FEATURES = 8
LEARNING_RATE = 0.1


def loss_of(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean squared error of a linear model."""
    return jnp.mean((inputs @ weights - targets) ** 2)


def main(arguments: list[str] | None = None) -> None:
    """Fit the model for some steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args(arguments).steps

    probe.start("jax-training")
    loss_and_gradient = jax.jit(jax.value_and_grad(loss_of))
    inputs = jax.random.normal(jax.random.key(0), (256, FEATURES))
    targets = inputs @ jnp.arange(1.0, FEATURES + 1.0)
    weights = jnp.zeros(FEATURES)
    loss = jnp.inf
    for _ in range(steps):
        with probe.region("train_step"):
            loss, gradient = loss_and_gradient(weights, inputs, targets)
            weights = jax.block_until_ready(weights - LEARNING_RATE * gradient)
        probe.step()
    print(f"{steps} steps, loss {float(loss):.6f}")
    probe.stop()


if __name__ == "__main__":
    main()
