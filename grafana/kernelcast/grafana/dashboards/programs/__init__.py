"""Rows about programs: kernels, device time, energy, probes, hints."""
