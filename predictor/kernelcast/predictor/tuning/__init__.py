"""Tuning hints: reported tunables, signals and diagnoses of programs, rules, hints, outcomes and approvals."""
