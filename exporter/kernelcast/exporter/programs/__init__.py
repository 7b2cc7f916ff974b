"""The exporter's side of the probe socket: programs connect, send reports, and receive hints."""
