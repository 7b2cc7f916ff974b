"""Series in memory: identity, windows on a grid of event time, running totals, snapshots."""
