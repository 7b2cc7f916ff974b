"""XIDs from the kernel's log."""

from kernelcast.exporter.kernel_log.assembly import check, kernel_log_source

__all__ = ["check", "kernel_log_source"]
