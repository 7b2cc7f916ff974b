"""The state of PyTorch's allocator of GPU memory; read by the probe's thread once an interval.

Source: `torch.cuda.memory_stats`, which makes no context and waits for no GPU.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kernelcast.probe.recording.device_recorder import AllocatorState

STATES: Final = {
    "allocated": "allocated_bytes.all.current",
    "reserved": "reserved_bytes.all.current",
    "inactive_split": "inactive_split_bytes.all.current",
    "peak": "allocated_bytes.all.peak",
}
"""State to the name of its value in `memory_stats`."""


class TorchAllocator:
    """Reads the allocator; it has nothing for a device without a context, or for another allocator than PyTorch's own.

    Args:
        modules: The imported modules.
        contexts: Returns the devices on which this process has a CUDA context.
    """

    def __init__(self, modules: Mapping[str, Any], contexts: Callable[[], tuple[int, ...]]) -> None:
        self._modules = modules
        self._contexts = contexts
        self._totals: dict[int, tuple[int, int]] = {}

    def __call__(self, device: int) -> AllocatorState:
        """Return the state of the allocator on a device."""
        cuda = getattr(self._modules.get("torch"), "cuda", None)
        try:
            if cuda is None or not cuda.is_initialized() or device not in self._contexts():
                return AllocatorState()
            if cuda.get_allocator_backend() != "native":
                return AllocatorState()
            found = cuda.memory_stats(device)
            sizes = tuple((state, int(found[name])) for state, name in STATES.items() if name in found)
            retries, failed = int(found.get("num_alloc_retries", 0)), int(found.get("num_ooms", 0))
        except Exception:  # noqa: BLE001  a PyTorch that is being imported, or of another form
            return AllocatorState()
        before = self._totals.get(device, (0, 0))  # the program may set them back to 0
        self._totals[device] = max(before[0], retries), max(before[1], failed)
        return AllocatorState(sizes, *self._totals[device])
