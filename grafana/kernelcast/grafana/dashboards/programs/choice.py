"""The programs to choose from on their page, the one in the worst state first."""

from typing import Final

from kernelcast.grafana import promql
from kernelcast.grafana.dashboards.frame import OWN_ALERTS, OWNER
from kernelcast.grafana.model.variables import RankedVariable
from kernelcast.wire.catalogue import kernel, predictor

_REPORTING: Final = "|".join(map(promql.name, (kernel.DEVICE_TIME, kernel.PROBE_RUNNING, kernel.PROBE_USER)))
"""Every program has one of these. None has a series for each kernel, of which a large fleet has a hundred thousand."""
_MOST_GPUS: Final = "1e6"
"""More GPUs than a program has: its state counts before their number."""


def worst_program() -> RankedVariable:
    """The program; the page opens on the one in the worst state, and of equal ones on that with the most GPUs.

    It opens on one: panels about kernels read every series of the programs chosen. Programs that have ended within the
    last hour come last.
    """
    here = f'{{__name__=~"{_REPORTING}", {OWNER}, Hostname=~"$hostname", gpu=~"$gpu"}}'
    gpus = f"count by (program) (group by (program, Hostname, gpu) ({here}))"
    conditions = (
        f'{promql.name(kernel.STANDING)}{{job=~"$job"}} > 0',
        f'{promql.name(predictor.FINDING_SINCE)}{{program!=""}}',
        f'ALERTS{{alertstate="firing", {OWN_ALERTS}, program!=""}}',
    )
    states = " or ".join(
        f"{len(conditions) - place} * group by (program) ({condition})" for place, condition in enumerate(conditions)
    )
    ended = f"-1 * group by (program) (present_over_time({here}[{promql.LOOK_BACK}]))"
    ranked = f"{_MOST_GPUS} * ({states}) + on (program) {gpus} or {gpus} or {ended}"
    return RankedVariable("program", "Program", ranked, "program", several=True)
