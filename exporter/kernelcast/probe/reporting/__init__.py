"""The connection to the exporter, and the thread that serves it."""
