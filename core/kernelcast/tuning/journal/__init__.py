"""A journal of the configurations that a node has tried or kept; a program reads it at its next start."""

from kernelcast.tuning.journal.journal import (
    GivenKept,
    Journal,
    JournalMachine,
    JournalProcess,
    KeptConfiguration,
    Measurement,
    this_process,
)

__all__ = [
    "GivenKept",
    "Journal",
    "JournalMachine",
    "JournalProcess",
    "KeptConfiguration",
    "Measurement",
    "this_process",
]
