"""Text expositions of an exporter and a bridge, in parts, and what `kernelcast.view` makes of them."""

import io

from rich.console import Console

from kernelcast.view.model import Picture, Recent
from kernelcast.view.page import read
from kernelcast.view.text import Screen

GPU = 'Hostname="n0",gpu="1",source="simulated"'
UP = 'kernelcast_producer_up{instance="n0",job="kernelcast-exporter"} 1\n'
JUDGED = 'kernelcast_forecast_judged_series{instance="p",job="kernelcast-predictor"} 12\n'
PREDICTOR = 'kernelcast_producer_up{instance="p",job="kernelcast-predictor"} 1\n'
BRIDGE = "kernelcast_bridge_ready 1\n"


def kernel(name: str, launches: float, seconds: float, program: str = "train", rank: str = "0") -> str:
    """Series of one kernel."""
    labels = f'{{{GPU},kernel="{name}",program="{program}",rank="{rank}"}}'
    return (
        f"cuda_kernel_launches_total{labels} {launches}\n"
        f"cuda_kernel_duration_seconds_count{labels} {launches}\n"
        f"cuda_kernel_duration_seconds_sum{labels} {seconds}\n"
    )


def steps(
    count: float,
    seconds: float,
    phases: dict[str, float] | None = None,
    *,
    program: str = "train",
    rank: str = "0",
    items: float = 0.0,
) -> str:
    """Series of the steps of one rank of a program without a GPU; it is in its forward phase now."""
    labels = f'Hostname="n0",program="{program}",rank="{rank}",source="cpu"'
    text = f"kernelcast_program_steps_total{{{labels}}} {count}\n"
    text += f"kernelcast_program_step_seconds_total{{{labels}}} {seconds}\n"
    if items:
        text += f"kernelcast_program_items_total{{{labels}}} {items}\n"
    for phase, part in (phases or {}).items():
        text += f'kernelcast_program_phase_seconds_total{{{labels},phase="{phase}"}} {part}\n'
    if phases:
        text += f'kernelcast_program_phase{{{labels},phase="forward"}} 1\n'
    return text


def ended(page: str) -> str:
    """The page after its programs have ended: their totals stay."""
    return "".join(line for line in page.splitlines(keepends=True) if "program_phase{" not in line)


def recent(*pages: str, every_seconds: float = 10.0) -> Recent:
    """What is known after these pages, the first of them at 1,000 s."""
    made = Recent("a bridge")
    for number, page in enumerate(pages):
        made.add(1000 + every_seconds * number, read(page))
    return made


def picture(*pages: str, every_seconds: float = 10.0, text: str = "", sort: str = "time") -> Picture:
    """The picture at the time of the last of these pages."""
    made = recent(*pages, every_seconds=every_seconds)
    return made.picture(1000 + every_seconds * max(0, len(pages) - 1), sort=sort, text=text)


def drawn(shown: Picture, *, width: int = 150, height: int | None = None) -> str:
    """A picture as text."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(Screen(shown, " by time", height=height))
    return console.export_text()
