"""A journal of configurations that this node has tried or kept; the next start reads it without any service."""

from kernelcast.tuning.journal.journal import Journal, Kept, Machine, Process, this_process

__all__ = ["Journal", "Kept", "Machine", "Process", "this_process"]
