"""The page about programs: steps, phases, ranks, kernels, waits, hints."""

from kernelcast.grafana.addresses import KERNELS
from kernelcast.grafana.dashboards import forecasts, frame, headlines
from kernelcast.grafana.dashboards.pages.page import Page
from kernelcast.grafana.dashboards.programs import choice, device_time, hints, hot_spots, one_kernel, ranks
from kernelcast.grafana.model.dashboard import Dashboard


def program() -> Dashboard:
    """Programs, down to one kernel."""
    page = Page(
        KERNELS,
        "Program",
        "Does it go on, and how fast? Which phase, rank or kernel takes the time, and which got slower? What should be "
        "changed? The page opens on the program in the worst state; several can be chosen.",
        ("gpu", "program"),
    )
    figures = (
        *(headlines.steps(), headlines.items(), headlines.peak(), headlines.standing()),
        *(headlines.hottest(width=5), headlines.findings(), headlines.breach(width=5), headlines.hints(width=7)),
    )
    rows = (
        ranks.row(),
        device_time.row(),
        hot_spots.row(),
        one_kernel.row(),
        forecasts.of_programs(),
        hints.row(),
    )
    variables = (
        *(*frame.hardware(), choice.worst_program(), frame.ranks(), frame.kernels()),
        *forecasts.variables(forecasts.PROGRAM),
    )
    return page.dashboard(variables, (*figures, *ranks.first_screen(), hot_spots.ranking()), rows)
