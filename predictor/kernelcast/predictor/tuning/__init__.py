"""Tuning hints: tunables, rules, hints and their outcomes."""
