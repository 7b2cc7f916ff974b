"""Settings from flags, environment and a YAML file; errors without secrets."""
