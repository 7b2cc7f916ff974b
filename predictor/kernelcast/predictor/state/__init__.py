"""State that is kept on Kafka: windows and blocks by partition, scores, findings, and baselines that nodes share."""
