"""Where dashboards are found: their uids stand in file names, links and alerts, so they never change."""

from typing import Final

OVERVIEW: Final = "kernelcast-overview"
GPUS: Final = "kernelcast-gpus"
KERNELS: Final = "kernelcast-kernels"
PIPELINE: Final = "kernelcast-pipeline"
