"""State of each kernel that CuPy launches, and the choice of launches to time.

Each launch costs one addition. Only a sample of a frequent kernel's launches is timed, at random distances: programs
repeat themselves, and a fixed distance could always select the same launch of a cycle.
"""

import sys
from collections.abc import Iterator, Sequence
from math import ceil
from random import Random
from typing import Final, NamedTuple

from kernelcast.probe.recording.texts import printable
from kernelcast.wire.kernels import OTHER

# Kernels that are counted by name, as in the recorder.
MAX_KERNELS: Final = 2048
NEVER: Final = sys.maxsize
# Keeps a quotient that is whole but for rounding from being rounded up.
ROUNDING: Final = 1e-9
# Stride until it is known how often a kernel is launched.
FIRST_STRIDE: Final = 16


class TracedConfiguration(NamedTuple):
    """The launch configuration of a kernel."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int


class Traced:
    """One kernel on one device.

    The program's threads add to `launched` and `captured`, in one bytecode each; the probe's thread uses the rest.

    Attributes:
        printable: Its signature, as the recorder names it.
        launched: Launches.
        captured: Launches that were captured into a graph; the graph's replays are not seen here.
        sample_at: Number of the launch that is timed next.
        sampled_at: Number of the launch that was timed last.
        stride: Launches per timed one.
        reported: Launches that were passed to the recorder.
        reported_captured: Captured launches that were passed to the recorder.
        seen: Launches at the last poll.
    """

    __slots__ = (
        "captured",
        "device",
        "launched",
        "printable",
        "reported",
        "reported_captured",
        "sample_at",
        "sampled_at",
        "seen",
        "signature",
        "stride",
    )

    def __init__(self, signature: str, device: int) -> None:
        self.signature = signature
        self.printable = printable(signature)
        self.device = device
        self.launched = self.captured = self.reported = self.reported_captured = self.seen = self.sampled_at = 0
        self.stride = FIRST_STRIDE
        self.sample_at = NEVER

    def sampled(self, random: Random) -> int:
        """Choose the next launch to time; returns the weight of the present one, which is not counted yet."""
        weight = self.launched - self.sampled_at
        self.sampled_at = self.launched
        self.sample_at = self.launched + 1 + random.randint(1, max(1, 2 * self.stride - 1))
        return max(1, weight)


class TracedKernels:
    """All kernels of a process, up to a limit; the rest counts as `other`."""

    def __init__(self, limit: int = MAX_KERNELS) -> None:
        self._limit = limit
        self._known: dict[tuple[str, int], Traced] = {}
        self.sampling = False
        self.random = Random()  # noqa: S311  which launch is timed is no secret

    def __iter__(self) -> Iterator[Traced]:
        return iter(list(self._known.values()))

    def get(self, signature: str, device: int) -> Traced:
        """The kernel of that name on that device."""
        key = (signature, device)
        if key not in self._known and len(self._known) >= self._limit:
            key = (OTHER, device)
        found = self._known.get(key)
        if found is None:
            found = self._known.setdefault(key, Traced(*key))
            found.sample_at = 2 if self.sampling else NEVER  # as in `sample`
        return found

    def sample(self, *, wanted: bool) -> None:
        """Time launches from now on, or none any more."""
        self.sampling = wanted
        for traced in self:
            traced.sample_at = max(2, traced.launched + 1) if wanted else NEVER  # a first launch may still load code
            # The next timed launch does not represent launches from before the pause.
            traced.sampled_at = traced.launched

    def share_out(self, samples: float) -> None:
        """Spread the samples of one interval over the kernels, by what each launched in the last one."""
        active = [(traced, traced.launched - traced.seen) for traced in self]
        strides = fair_strides([launches for _, launches in active], samples)
        for (traced, launches), stride in zip(active, strides, strict=True):
            traced.seen += launches
            if launches:
                traced.stride = stride
                if self.sampling:
                    traced.sample_at = min(traced.sample_at, traced.launched + 2 * stride)


def fair_strides(launches: Sequence[int], samples: float) -> list[int]:
    """Launches per sample for each kernel, so that all get at most the same number of samples.

    Rare kernels are timed at every launch, and the rest of their share is given to the other kernels.

    Args:
        launches: Launches of each kernel in one interval.
        samples: Largest number of samples in one interval.
    """
    left, open_kernels = samples, sum(1 for count in launches if count)
    strides = [1] * len(launches)
    for index in sorted(range(len(launches)), key=launches.__getitem__):
        if not launches[index]:
            continue
        share = left / open_kernels
        strides[index] = max(1, ceil(launches[index] / share * (1 - ROUNDING))) if share > 0 else NEVER
        left -= min(share, launches[index])
        open_kernels -= 1
    return strides
