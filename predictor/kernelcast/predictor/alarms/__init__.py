"""Turns the many candidates of a cycle into few findings: false-discovery control, groups, damping, budget of pages."""
