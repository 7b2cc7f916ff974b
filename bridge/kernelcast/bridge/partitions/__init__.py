"""The partitions that a bridge reads: how far, from where, and whether they may be shown."""
