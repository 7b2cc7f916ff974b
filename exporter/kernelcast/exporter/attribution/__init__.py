"""Attribution of GPUs to pods, containers, jobs and users."""

from kernelcast.exporter.attribution.attribution import AttributedGpu, Attribution, AttributionSettings

__all__ = ["AttributedGpu", "Attribution", "AttributionSettings"]
