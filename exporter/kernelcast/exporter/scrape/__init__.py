"""Pages of inference engines on this node, where no Prometheus reads them."""

from kernelcast.exporter.scrape.source import scrape_source

__all__ = ["scrape_source"]
