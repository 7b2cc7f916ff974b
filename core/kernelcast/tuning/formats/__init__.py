"""Measurements as files: Kernel Tuner's cache format, and JSON of our own."""
