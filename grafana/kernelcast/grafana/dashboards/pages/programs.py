"""Pages about programs: kernels, synchronisation with the CPU, hints."""

from kernelcast.grafana.addresses import HINTS, KERNELS, SYNCHRONISATION
from kernelcast.grafana.dashboards import frame, headlines
from kernelcast.grafana.dashboards.hardware import gpu_links
from kernelcast.grafana.dashboards.pages.page import Page
from kernelcast.grafana.dashboards.programs import device_time, energy, hot_spots, one_kernel
from kernelcast.grafana.dashboards.programs import hints as hint_panels
from kernelcast.grafana.model.dashboard import Dashboard


def kernels() -> Dashboard:
    """The kernels with the most time, down to one."""
    page = Page(
        KERNELS,
        "Kernels",
        "Which kernel takes the time, and which got slower?",
        "Kernels with the most time, each against its usual duration; then one kernel in detail.",
        ("gpu", "kernels"),
    )
    figures = (headlines.steps(), headlines.items(), headlines.hottest(), headlines.breach(), headlines.hints())
    first = (*figures, hot_spots.ranking())
    rows = (one_kernel.row(), *hot_spots.rows(), energy.row())
    return page.dashboard(frame.down_to_kernels(), first, rows)


def synchronisation() -> Dashboard:
    """Who waits for whom between CPU, GPU and data."""
    page = Page(
        SYNCHRONISATION,
        "CPU, GPU and data",
        "Who waits for whom?",
        "The GPUs' time by activity, gaps between activities, and threads that wait; then copies and regions.",
        ("gpu", "synchronisation"),
    )
    return page.dashboard(frame.down_to_ranks(), device_time.first_screen(), (*device_time.rows(), gpu_links.copies()))


def hints() -> Dashboard:
    """What to change, and whether it helped."""
    page = Page(
        HINTS,
        "Hints",
        "What should be changed, and did it help?",
        "Open hints, kept hints with their measured gain, and the events; then evidence and tunables.",
        ("hints",),
    )
    return page.dashboard(frame.down_to_kernels(), hint_panels.first_screen(), hint_panels.rows())
