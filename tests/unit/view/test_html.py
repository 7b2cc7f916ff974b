"""The first page in a browser: the same words as in a terminal, escaped, and without scripts and inline styles."""

import re
from html.parser import HTMLParser

from tests.support.view.pages import BRIDGE, GPU, UP, kernel, recent, steps

from kernelcast.view.html import MOST_KERNELS, MOST_NEWS, body
from kernelcast.view.model import Alerts

FOREIGN = '<script>alert(1)</script>"\x1b'


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_names_are_text_and_nothing_needs_a_script_or_an_inline_style() -> None:
    escaped = FOREIGN.replace('"', '\\"')
    known = recent(
        UP + BRIDGE + kernel(escaped, 1, 1.0, program=escaped) + steps(1, 1.0, {"data": 1.0}, program=escaped)
    )
    known.alerts = Alerts([{"alertname": FOREIGN, "Hostname": FOREIGN, "severity": "critical"}])
    text = body(known.picture(1000.0))
    tags = Tags(text).found
    assert "script" not in {tag for tag, _ in tags}
    assert not any(name == "style" or name.startswith("on") for _, attributes in tags for name in attributes)
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text


def test_phases_are_a_bar_whose_parts_add_up() -> None:
    text = body(recent(steps(10, 5.0, {"data": 3.1, "forward": 1.9})).picture(1000.0))
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="([0-9.]+)"', text)]
    assert widths == [62.0, 38.0]
    assert "<title>data 62 %</title>" in text
    assert "train is input-bound: 62 % of the step waits for data" in text


def test_an_alert_of_a_bridge_leads_to_its_runbook() -> None:
    known = recent(UP + BRIDGE)
    known.alerts = Alerts([{"alertname": "KernelcastGpuHot", "severity": "warning"}])
    assert '<a href="/runbooks/KernelcastGpuHot">GpuHot</a>' in body(known.picture(1000.0))


def test_what_is_left_out_is_counted() -> None:
    hot = "".join(
        f'DCGM_FI_DEV_GPU_TEMP{{Hostname="n",gpu="{n}"}} 90\nDCGM_FI_DEV_SLOWDOWN_TEMP{{Hostname="n",gpu="{n}"}} 87\n'
        for n in range(MOST_NEWS + 2)
    )
    kernels = "".join(kernel(f"k{n}", 1, 1.0) for n in range(MOST_KERNELS + 3))
    text = body(recent(hot + kernels).picture(1000.0))
    assert "and 2 more below" in text
    assert "and 3 more" in text


def test_a_recording_or_a_simulation_is_said_to_be_one() -> None:
    page = f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}} 60\n"
    assert "Source: simulated, not a GPU here and now" in body(recent(page).picture(1000.0))
    assert "Source" not in body(recent(page.replace("simulated", "")).picture(1000.0))
