"""Conditions for hints and trials: checks of a hint, pauses, and the stop file of the node."""
