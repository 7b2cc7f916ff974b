"""Faults in the noise of recorded series."""
