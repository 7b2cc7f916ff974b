"""Push beside scraping: every point to receivers of OTLP or remote write, with Kafka as the backlog."""
