"""The uids of the dashboards. File names, links and alerts contain them, so they never change."""

from typing import Final

OVERVIEW: Final = "kernelcast-overview"
GPUS: Final = "kernelcast-gpus"
KERNELS: Final = "kernelcast-kernels"
PIPELINE: Final = "kernelcast-pipeline"
