"""The predictor without Kafka: series from Prometheus, predictions and findings on its own `/metrics`."""
