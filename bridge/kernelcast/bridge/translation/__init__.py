"""From OTLP to Prometheus' names, labels and kinds."""
