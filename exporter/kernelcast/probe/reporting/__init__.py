"""Reports to the exporter, sent by the probe's own thread."""
