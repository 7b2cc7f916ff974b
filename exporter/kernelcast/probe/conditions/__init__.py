"""Conditions for hints and trials: checks of a hint, orders to stop, and pauses."""
