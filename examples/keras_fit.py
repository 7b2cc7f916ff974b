"""A Keras model that knows nothing of the probe: steps, evaluation and compilations are measured by themselves.

    KERAS_BACKEND=jax kernelcast probe -- python examples/keras_fit.py

With the backend `torch` the waits for data and the backward passes are known as well.
"""

import argparse

import keras
import numpy as np

FEATURES = 32
ROWS = 4096


def main(arguments: list[str] | None = None) -> None:
    """Train for some epochs, with a validation after each."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args(arguments).epochs

    inputs = np.random.default_rng(1).random((ROWS, FEATURES), np.float32)
    targets = inputs.sum(axis=1, keepdims=True)
    layers = [keras.layers.Input((FEATURES,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(optimizer="adam", loss="mse")
    model.fit(inputs, targets, batch_size=64, epochs=epochs, validation_split=0.25, verbose=0)
    print(f"{int(model.optimizer.iterations)} steps")


if __name__ == "__main__":
    main()
