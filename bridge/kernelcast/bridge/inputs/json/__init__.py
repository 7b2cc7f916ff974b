"""JSON in: by a topic's own mapping, and OTLP's."""
