"""Who uses the GPUs: pods, containers, jobs, users."""

from kernelcast.exporter.attribution.attribution import Attribution, AttributionSettings, Gpu

__all__ = ["Attribution", "AttributionSettings", "Gpu"]
