"""Writing pages for Prometheus: formats, compression, shards, discovery."""
