"""Running totals as snapshots on Kafka, and back."""
