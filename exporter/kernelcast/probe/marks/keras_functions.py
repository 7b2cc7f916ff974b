"""Marks on Keras 3: the training batches of `fit`, and `evaluate`, with any of its backends.

A step is a training batch as Keras tells it to callbacks: one call of the model's training function, which has several
batches with `steps_per_execution`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kernelcast.probe.marks.timeline import EVALUATION, Timeline
from kernelcast.probe.marks.wrapping import wrap

TRAINERS: Final = ("JAXTrainer", "TorchTrainer", "TensorFlowTrainer")


def mark_keras(timeline: Timeline, module: Any) -> None:
    """Mark one of `KERAS_MODULES`, which has been imported.

    Args:
        timeline: Called at each mark.
        module: The module.
    """
    if hasattr(module, "CallbackList"):
        wrap(module.CallbackList, "on_train_batch_begin", partial(_told, timeline.whole_begins))
        wrap(module.CallbackList, "on_train_batch_end", partial(_told, timeline.whole_ends))
    for name in TRAINERS:
        if hasattr(module, name):
            wrap(getattr(module, name), "evaluate", partial(timeline.marking, EVALUATION))


def _told(mark: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    def told(*arguments: Any, **named: Any) -> Any:
        mark()
        try:
            return function(*arguments, **named)
        except BaseException as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise

    return told
