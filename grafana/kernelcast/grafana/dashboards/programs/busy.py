"""PromQL for the GPU time of kernels and programs, as the recording rules keep it; panels rank kernels by it.

Kernels with less than 1 % of their program's time are in the program's total alone. Raw series of kernels are a hundred
for each GPU, so that a program on a thousand GPUs would take a page many seconds to read.
"""

from typing import Final

from kernelcast.grafana.rules.recording import KERNEL_BASELINE, KERNEL_BUSY, KERNEL_MEAN, PROGRAM_BUSY

_GPUS: Final = 'job=~"$job", Hostname=~"$hostname", gpu=~"$gpu"'
_PROGRAMS: Final = f'{_GPUS}, program=~"$program", rank=~"$rank|"'
_KERNELS: Final = f'{_PROGRAMS}, kernel=~"$kernel"'
MEAN: Final = f"{KERNEL_MEAN}{{{_KERNELS}}}"
"""Mean duration of each kernel chosen, of each rank on a GPU."""
USUAL: Final = f"last_over_time({KERNEL_BASELINE}{{{_KERNELS}}}[10m])"
"""Its usual duration, which is recorded every five minutes."""


def on_gpus() -> str:
    """GPU seconds a second of each kernel on the GPUs chosen, of any program."""
    return f"{KERNEL_BUSY}{{{_GPUS}}}"


def of_kernels(*matchers: str) -> str:
    """The same of the programs chosen, with further matchers such as `kernel!="other"`."""
    return f"{KERNEL_BUSY}{{{', '.join((_PROGRAMS, *matchers))}}}"


def of_chosen_kernels() -> str:
    """The same of the kernels chosen."""
    return f"{KERNEL_BUSY}{{{_KERNELS}}}"


def of_programs() -> str:
    """GPU seconds a second of all kernels of the programs chosen."""
    return f"{PROGRAM_BUSY}{{{_PROGRAMS}}}"
