"""The compiled functions that read an OTLP message, from its first byte to its points."""
