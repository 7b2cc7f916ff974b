"""State of the partitions that a bridge reads: bounds, progress and exposure."""
