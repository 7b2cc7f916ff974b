"""The screen in a terminal: what fits, what is cut first, and what stays at any size."""

import pytest
from tests.support.view.pages import BRIDGE, GPU, PREDICTOR, UP, drawn, kernel, picture, recent, steps

from kernelcast.view.model import Alerts, Picture


def full() -> Picture:
    """More of everything than 24 lines have room for."""
    gpus = "".join(
        f'DCGM_FI_DEV_GPU_TEMP{{Hostname="sim-node-0",gpu="{number}"}} {temperature}\n'
        f'DCGM_FI_DEV_SLOWDOWN_TEMP{{Hostname="sim-node-0",gpu="{number}"}} 87\n'
        for number, temperature in enumerate((60, 93, 61, 62, 63, 64, 65, 66))
    )
    kernels = "".join(kernel(f"kernel_{number}", 100 + number, 1.0) for number in range(30))
    programs = "".join(steps(10, 5.0, {"data": 3.0, "forward": 2.0}, program=f"train-{number}") for number in range(5))
    crossed = (
        'kernelcast_degradation_crossed_timestamp_seconds{Hostname="sim-node-0",gpu="1",cause="thermal",'
        'metric="DCGM_FI_DEV_GPU_TEMP"} 880\n'
    )
    hints = 'kernelcast_hint_outcomes_total{program="train",tunable="block",state="kept"} 1\n'
    known = recent(*[UP + BRIDGE + PREDICTOR + gpus + kernels + programs + crossed + hints] * 2)
    known.title, known.note = "http://127.0.0.1:19401/", "SIMULATED, not a real GPU"
    names = ("GpuHot", "BreachImminent", "KernelSlower", "NodeSilent")
    known.alerts = Alerts(
        [{"alertname": f"Kernelcast{name}", "severity": "critical", "Hostname": "n"} for name in names]
    )
    return known.picture(1010.0)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 12), (160, 50), (40, 8), (80, 3)])
def test_address_and_worst_news_are_on_the_first_lines_at_any_size(width: int, height: int) -> None:
    lines = drawn(full(), width=width, height=height).splitlines()
    assert len(lines) <= height
    assert "http://127.0.0.1:19401/" in lines[0]
    assert "sim-node-0 GPU 1 is at its lim"[: width - 12] in lines[1]
    assert all(len(line) <= width for line in lines)


def test_a_terminal_of_80_by_24_shows_every_section_and_few_kernels() -> None:
    text = drawn(full(), width=80, height=24)
    for words in (
        "sim-node-0 / 1",
        "at its limit",
        "train-0",
        "BreachImminent",
        "crossed 2 min ago",
        "kept",
        "kernel_",
    ):
        assert words in text, text
    assert "input-bound: data 60 %, forward 40 %" in text
    assert text.count("kernel_") <= 4
    for name in ("GpuHot", "KernelSlower"):
        assert name in text, "kernels shrink before alerts"


def test_news_are_broken_between_words_where_there_is_room() -> None:
    error = "http://127.0.0.1:19401/metrics does not answer: Connection refused; check that the bridge still runs there"
    known = recent(kernel("gemm", 1, 1.0))
    known.error = error
    lines = drawn(known.picture(1000.0), width=80, height=24).splitlines()
    assert " ".join(" ".join(lines[1:4]).split()).startswith(f"! {error}; these figures are")
    assert all(len(line) <= 80 for line in lines)
    (_, one, *_) = drawn(known.picture(1000.0), width=80, height=3).splitlines()
    assert one.startswith(" !  http://127.0.0.1:19401/metrics does not answer")


def test_where_there_is_room_everything_is_shown() -> None:
    text = drawn(full(), width=160, height=100)
    assert text.count("\nkernel_") == 20
    assert "more)" not in text.replace("kernels by time: 30, 0 launches/s (10 more)", "")


def test_an_empty_section_says_what_that_means_in_one_line() -> None:
    text = drawn(recent(kernel("gemm", 1, 1.0)).picture(1000.0), width=80, height=24)
    assert "not here  GPUs; on a bridge (port 19401): alerts, predictions, hints" in text
    assert "programs" in text
    assert GPU not in text


def test_a_program_without_a_node_is_named_once_in_its_prediction() -> None:
    page = (
        'kernelcast_degradation_crossed_timestamp_seconds{program="llm",kernel="gemm",metric="m",cause="drift"} 990\n'
    )
    (line,) = [line for line in drawn(picture(page)).splitlines() if line.startswith("llm ")]
    assert line.split() == ["llm", "drift", "gemm", "m", "crossed", "10", "s", "ago"]
