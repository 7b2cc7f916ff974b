"""The uids of the dashboards (pages), which never change (file names, links and alerts have them), and runbooks."""

from typing import Final

OVERVIEW: Final = "kernelcast-overview"
GPUS: Final = "kernelcast-gpus"
KERNELS: Final = "kernelcast-kernels"
SERVING: Final = "kernelcast-serving"
PIPELINE: Final = "kernelcast-pipeline"


def runbook(runbooks_url: str, alert: str) -> str:
    """The address of an alert's runbook.

    Args:
        runbooks_url: A page with a heading for each alert; or, with a slash at its end, the folder of their pages, as
            the bridge serves it.
        alert: The alert's name.
    """
    return f"{runbooks_url}{alert}" if runbooks_url.endswith("/") else f"{runbooks_url}#{alert.lower()}"
