"""What a program imports to be measured, and to let others tune it. Standard library only.

::

    from kernelcast import probe

    probe.start("training")
    block = probe.tunable("block_size", [64, 128, 256], 128, kind="block_size", kernels=["stencil"])
    for batch in batches:
        launch(stencil, block=block.value)
        probe.observe("stencil", duration_ns, block=(block.value, 1, 1))
        probe.step()
"""

from kernelcast.probe.current import copy, count, observe, start, step, stop, sync, tunable
from kernelcast.probe.probe import Probe
from kernelcast.probe.tunables import Agreement, Tunable
from kernelcast.wire.frames import DeviceClaim

__all__ = [
    "Agreement",
    "DeviceClaim",
    "Probe",
    "Tunable",
    "copy",
    "count",
    "observe",
    "start",
    "step",
    "stop",
    "sync",
    "tunable",
]
