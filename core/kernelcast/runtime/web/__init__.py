"""The HTTP server of a daemon, and what guards it."""
