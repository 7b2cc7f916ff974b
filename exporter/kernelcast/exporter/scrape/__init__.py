"""Pages of inference engines and of other vendors' exporters on this node, where no Prometheus reads them."""

from kernelcast.exporter.scrape.source import scrape_source

__all__ = ["scrape_source"]
