"""The uids of the dashboards (pages). File names, links and alerts contain them, so they never change."""

from typing import Final

OVERVIEW: Final = "kernelcast-overview"
NODE: Final = "kernelcast-node"
GPUS: Final = "kernelcast-gpus"
KERNELS: Final = "kernelcast-kernels"
SYNCHRONISATION: Final = "kernelcast-synchronisation"
FORECASTS: Final = "kernelcast-forecasts"
HINTS: Final = "kernelcast-hints"
PIPELINE: Final = "kernelcast-pipeline"
