"""Rows of panels about programs: kernels, device time, energy, probes, hints; `pages.programs` places them."""
