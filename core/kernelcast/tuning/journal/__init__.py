"""A journal of configurations that this node has tried or kept; the next start reads it without any service."""

from kernelcast.tuning.journal.journal import Journal, JournalMachine, JournalProcess, KeptConfiguration, this_process

__all__ = ["Journal", "JournalMachine", "JournalProcess", "KeptConfiguration", "this_process"]
