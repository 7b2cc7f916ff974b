"""Attribution of GPUs to pods, containers, jobs and users."""

from kernelcast.exporter.attribution.attribution import Attribution, AttributionSettings, Gpu

__all__ = ["Attribution", "AttributionSettings", "Gpu"]
