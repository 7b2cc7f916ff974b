"""HTTP server of a daemon: TLS, passwords, limits."""
