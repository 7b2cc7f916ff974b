"""Series in memory: identities, windows and blocks on a grid of event time, running totals, attributes, snapshots."""
