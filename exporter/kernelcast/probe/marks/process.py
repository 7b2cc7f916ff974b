"""The marks of this process: put on a framework when it is imported, and reported by the probe that runs.

An interpreter that waits for its first step imports this module; it imports the rest with the framework.
"""

from __future__ import annotations

import os
import sys

from kernelcast.probe import TYPE_CHECKING
from kernelcast.probe.process.imports import ImportWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Final

    from kernelcast.probe.marks.timeline import Timeline
    from kernelcast.probe.marks.torch_functions import TorchMarks
    from kernelcast.probe.recording.recorder import Recorder


TORCH_MODULES: Final = (
    "torch.utils.data.dataloader",
    "torch.amp.grad_scaler",
    "torch.cuda.amp.grad_scaler",
    "torch.distributed.checkpoint.state_dict_saver",
    "safetensors.torch",
    "torch._dynamo.callback",
)
"""Modules that are marked besides `torch` itself."""
KERAS_MODULES: Final = (
    "keras.src.callbacks.callback_list",
    "keras.src.backend.jax.trainer",
    "keras.src.backend.torch.trainer",
    "keras.src.backend.tensorflow.trainer",
)
"""Modules of Keras that are marked."""


class ProcessMarks:
    """Watches imports, and hands the timeline's totals to the probe. There is one, `marks`.

    Attributes:
        timeline: None until a framework has been imported.
        on_first_step: Called at the first automatic step.
    """

    def __init__(self) -> None:
        self.timeline: Timeline | None = None
        self.on_first_step: Callable[[], object] | None = None
        self._recorder: Recorder | None = None
        self._torch: TorchMarks | None = None
        self._watch: ImportWatch | None = None

    def watch(self, on_first_step: Callable[[], object] | None = None) -> None:
        """Mark frameworks now or when they are imported; a second call only sets the function."""
        self.on_first_step = on_first_step
        if self.timeline is not None:
            self.timeline.on_first_step = on_first_step
        if self._watch is None:
            of_torch = dict.fromkeys(("torch", *TORCH_MODULES), self._mark_torch)
            of_keras = dict.fromkeys(KERAS_MODULES, self._mark_keras)
            self._watch = ImportWatch({**of_torch, **of_keras, "jax": self._mark_jax})
            self._watch.start()

    def iterate(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the items of an iterable; the wait for each is the phase `data`."""
        iterator = iter(batches)
        fetch = self._begin().fetching(next, lambda: self._torch is None or self._torch.has_gradients(), None)
        while True:
            try:
                batch = fetch(iterator)
            except StopIteration:
                return
            yield batch

    def attach(self, recorder: Recorder) -> None:
        """Add steps to a recorder from now on, with those since the process began."""
        from kernelcast.probe.marks.allocator import TorchAllocator  # noqa: PLC0415  not before a probe
        from kernelcast.probe.marks.cost import MarksCost  # noqa: PLC0415
        from kernelcast.probe.marks.gpu_phases import GpuPhases  # noqa: PLC0415
        from kernelcast.probe.marks.job import job_rows  # noqa: PLC0415
        from kernelcast.probe.marks.standby import Standby  # noqa: PLC0415
        from kernelcast.probe.process.driver import active_devices  # noqa: PLC0415

        self._recorder = recorder
        recorder.allocator = TorchAllocator(sys.modules, active_devices)
        recorder.gpu_phases = GpuPhases(recorder.progress, sys.modules, active_devices)
        recorder.job = lambda: job_rows(os.environ, sys.modules, self._torch.precision if self._torch else "")
        recorder.standby = Standby(recorder.progress, lambda: self.timeline)
        recorder.marks_cost = MarksCost(recorder.progress, lambda: self.timeline)
        if self.timeline is not None:
            recorder.progress.adopt(self.timeline.totals)
            self.timeline.totals = recorder.progress
            recorder.phase = self.timeline.phase

    def detach(self) -> None:
        """The probe has ended: begin again for the next one."""
        if self._recorder is not None and self.timeline is not None:
            from kernelcast.probe.recording.step_totals import StepTotals  # noqa: PLC0415  not before a framework

            self.timeline.totals = StepTotals()
        self._recorder = None

    def forked(self) -> None:
        """Forget everything in a forked child, which trains nothing yet."""
        self.detach()
        if self.timeline is not None:
            self.timeline.reset()

    def _begin(self) -> Timeline:
        if self.timeline is None:
            from kernelcast.probe.marks.timeline import Timeline  # noqa: PLC0415  with the framework, which takes longer
            from kernelcast.probe.recording.step_totals import StepTotals  # noqa: PLC0415

            self.timeline = Timeline(self._recorder.progress if self._recorder else StepTotals())
            self.timeline.on_first_step = self.on_first_step
            if self._recorder is not None:
                self._recorder.phase = self.timeline.phase
        return self.timeline

    def _mark_torch(self, module: Any) -> None:
        if module.__name__ == "torch":
            from kernelcast.probe.marks.torch_functions import TorchMarks  # noqa: PLC0415  with the framework

            self._torch = TorchMarks(self._begin(), module)
            for name in TORCH_MODULES:
                if name in sys.modules:
                    self._torch.mark(sys.modules[name])
        elif self._torch is not None:  # else it is a part of `torch` that is imported with it
            self._torch.mark(module)

    def _mark_jax(self, module: Any) -> None:
        from kernelcast.probe.marks.jax_functions import mark_jax  # noqa: PLC0415  with the framework

        mark_jax(self._begin(), module)

    def _mark_keras(self, module: Any) -> None:
        from kernelcast.probe.marks.keras_functions import mark_keras  # noqa: PLC0415  with the framework

        mark_keras(self._begin(), module)


marks = ProcessMarks()
"""The marks of this process."""
