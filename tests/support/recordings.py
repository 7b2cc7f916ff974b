"""A recording of launches, made up."""

from typing import Any

from kernelcast.tuning.formats.kernel_tuner import KernelTunerRecording, Recorded


def grid() -> KernelTunerRecording:
    """A smooth space of 256 configurations, a tenth of which fail."""
    entries: dict[tuple[Any, ...], Recorded] = {}
    for x in range(16):
        for y in range(1, 9):
            for mode in ("plain", "fast"):
                time = (1 + ((x - 11) / 8) ** 2 + ((y - 3) / 5) ** 2) * (1.0 if mode == "fast" else 1.4)
                noise = [1 + ((x * 7 + y * 3 + place * 5) % 11 - 5) / 1000 for place in range(9)]
                entries[x, y, mode] = Recorded(times=tuple(time * one for one in (1.08, *noise)))
                if x * y > 90:
                    entries[x, y, mode] = Recorded(failed="runtime")
    return KernelTunerRecording(
        "grid", "GPU", "ms", {"x": tuple(range(16)), "y": tuple(range(1, 9)), "mode": ("plain", "fast")}, entries
    )
