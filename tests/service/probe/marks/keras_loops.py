"""Programs of Keras that know nothing of the probe: prints the training batches made beside the steps counted.

KERAS_BACKEND=jax python keras_loops.py
"""

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from kernelcast import probe
from kernelcast.wire.frames import PHASES

INPUTS, TARGETS = np.random.default_rng(1).random((40, 4)), np.zeros((40, 1))
LOOPS: dict[str, Callable[[], int]] = {}


def loop(function: Callable[[], int]) -> Callable[[], int]:
    LOOPS[function.__name__] = function
    return function


class Counted(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts the training batches as a program does."""

    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, *_told: Any, **_named: Any) -> None:
        self.batches += 1


def model(**options: Any) -> Any:
    layers = [keras.layers.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    built = keras.Sequential(layers)
    built.compile(optimizer=keras.optimizers.Adam(), loss="mse", **options)
    return built


def fitted(built: Any, *data: Any, **options: Any) -> int:
    counted = Counted()
    built.fit(*data, verbose=0, callbacks=[counted], **options)
    return counted.batches


@loop
def epochs() -> int:
    return fitted(model(), INPUTS, TARGETS, batch_size=8, epochs=3)


@loop
def without_callbacks() -> int:
    built = model()
    built.fit(INPUTS, TARGETS, batch_size=8, epochs=2, verbose=0)
    return int(built.optimizer.iterations)


@loop
def steps_per_epoch() -> int:
    def batches() -> Iterator[Any]:
        while True:
            yield INPUTS[:8], TARGETS[:8]

    return fitted(model(), batches(), steps_per_epoch=7, epochs=2)


@loop
def validation_data() -> int:
    built = model(metrics=["mae"])
    made = fitted(built, INPUTS, TARGETS, batch_size=8, epochs=3, validation_data=(INPUTS, TARGETS))
    built.evaluate(INPUTS, TARGETS, batch_size=4, verbose=0)
    built.predict(INPUTS, batch_size=4, verbose=0)
    return made


@loop
def ends_early() -> int:
    class Stops(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, **_named: Any) -> None:
            self.model.stop_training = batch == 2

    built = model()
    built.fit(INPUTS, TARGETS, batch_size=8, epochs=4, verbose=0, callbacks=[Stops()])
    return int(built.optimizer.iterations)


@loop
def an_error_in_a_callback() -> int:
    class Fails(keras.callbacks.Callback):  # type: ignore[misc]
        def on_test_batch_end(self, *_told: Any, **_named: Any) -> None:
            raise ZeroDivisionError

    try:
        fitted(model(), INPUTS, TARGETS, batch_size=8)
        made = 5
        built = model()
        options = {"validation_data": (INPUTS, TARGETS), "callbacks": [Fails()], "verbose": 0}
        built.fit(INPUTS, TARGETS, batch_size=8, **options)
    except ZeroDivisionError:
        made += 5
    return made + fitted(model(), INPUTS, TARGETS, batch_size=8)


@loop
def tuned() -> int:
    space = probe.space("size", {"size": [1, 2, 4, 8]}, start={"size": 8}, per="step", share=1e6)
    made = fitted(model(), INPUTS, TARGETS, batch_size=4, epochs=30)
    return made if space.size == 8 else -1


@loop
def executions() -> int:
    """Of up to 2 batches: 3 an epoch of 5 batches. PyTorch's backend has none."""
    if keras.backend.backend() == "torch":
        return 0
    return fitted(model(steps_per_execution=2), INPUTS, TARGETS, batch_size=8, epochs=2)


@loop
def explicit() -> int:
    class Says(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, *_told: Any, **_named: Any) -> None:
            probe.step(items=8)

    model().fit(INPUTS, TARGETS, batch_size=8, epochs=2, verbose=0, callbacks=[Says()])
    return 10


def main() -> None:
    running = probe.start("loops", source="cpu", method="manual")
    progress = running.recorder.progress
    found = {}
    for name, function in LOOPS.items():
        steps, items, compilations, phases = (
            progress.steps,
            progress.items,
            progress.compilations,
            list(progress.phase_ns),
        )
        made = function()
        grown = zip(PHASES, progress.phase_ns, phases, strict=True)
        found[name] = {
            "made": made,
            "steps": progress.steps - steps,
            "items": progress.items - items,
            "compilations": progress.compilations - compilations,
            "phases": sorted(phase for phase, ns, earlier in grown if ns > earlier),
        }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
