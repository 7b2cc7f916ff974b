"""Kinds of faults: their descriptions and parameters."""
