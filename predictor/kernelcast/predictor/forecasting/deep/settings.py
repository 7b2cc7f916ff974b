"""Settings of the models that statsmodels fits."""

from typing import Annotated

from pydantic import Field

from kernelcast.runtime.settings.service import Remedy, Section


class DeepSettings(Section):
    """Settings of the models that statsmodels fits in worker processes, beside the fast methods.

    Attributes:
        enabled: Whether at all.
        workers: Processes; each has about 150 MiB while there is work, and the lowest priority.
        fits_per_block: Windows that are fitted for each block of five minutes, of the series nearest to a breach first.
    """

    enabled: bool = True
    workers: Annotated[int, Field(ge=1, le=64), Remedy("to switch it off, set predictor.deep.enabled to false")] = 1
    fits_per_block: Annotated[int, Field(ge=1, le=1024)] = 60
