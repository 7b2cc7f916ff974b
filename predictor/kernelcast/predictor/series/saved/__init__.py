"""Saves and restores a partition's series on `kernelcast.state`.

A snapshot has some *pages*, each with some dozen whole series, and *additions*: the new values of all other series
since the last snapshot, in columns. `StateWriter` describes the order; `Engine` saves, `state.partitions` restores.
"""
