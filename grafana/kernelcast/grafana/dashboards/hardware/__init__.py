"""Rows about GPUs, TPUs, their links, errors and users."""
