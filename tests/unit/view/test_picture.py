"""What matters now, from pages of an exporter and a bridge: rates, changes, empty lists, states."""

import io
import json

import pytest
from rich.console import Console
from tests.support.view.pages import (
    BRIDGE,
    GPU,
    JUDGED,
    PREDICTOR,
    UP,
    drawn,
    ended,
    kernel,
    picture,
    recent,
    steps,
)

from kernelcast.view.model import Alerts, Picture, Recent
from kernelcast.view.page import read
from kernelcast.view.rates import NOW_SECONDS, History
from kernelcast.view.text import Screen


def launches(shown: Picture) -> dict[str, float | None]:
    """Kernel launches a second by program."""
    return {one.name: one.launches_per_second for one in shown.programs}


def test_a_kernel_is_shown_with_its_rate_now_and_against_before() -> None:
    (one,) = picture(kernel("gemm", 100, 1.0), kernel("gemm", 200, 4.0)).kernels
    assert one.launches_per_second == 10
    assert one.mean_seconds == pytest.approx(0.03)
    assert one.before_seconds == pytest.approx(0.01)
    assert one.change_ratio == pytest.approx(3.0)
    assert one.busy_ratio == pytest.approx(0.3)


def shaped(grid: str) -> str:
    return f'cuda_kernel_info{{{GPU},kernel="gemm",program="train",rank="0",grid="{grid}"}} 1\n'


def test_a_kernel_is_compared_with_the_same_launch_configuration_only() -> None:
    pages = [kernel("gemm", count, seconds) for count, seconds in ((100, 1.0), (200, 4.0), (300, 7.0), (400, 13.0))]
    grids = ("8x1x1", "12x1x1", "12x1x1", "12x1x1")
    history = History()
    changes = []
    for number, (page, grid) in enumerate(zip(pages, grids, strict=True)):
        history.add(100.0 * number, read(page + shaped(grid)))
        changes.append(history.kernels()[0].change_ratio)
    assert changes == [None, None, None, pytest.approx(2.0)]


def test_a_program_that_launches_more_often_makes_no_kernel_slower() -> None:
    fast, slow = kernel("gemm", 1000, 1.0, program="fast"), kernel("gemm", 1000, 10.0, program="slow")
    later = kernel("gemm", 1010, 1.01, program="fast") + kernel("gemm", 1090, 10.9, program="slow")
    (one,) = picture(fast + slow, later).kernels
    assert one.change_ratio == pytest.approx(1.0)


def test_before_the_second_reading_there_is_no_rate_rather_than_zero() -> None:
    shown = picture(kernel("gemm", 100, 1.0))
    assert shown.kernels[0].launches_per_second is None
    assert "rates after the second reading" in drawn(shown)


def test_a_program_that_began_again_counts_from_zero() -> None:
    (one,) = picture(kernel("gemm", 1000, 10.0), kernel("gemm", 50, 1.0)).kernels
    assert one.launches_per_second == 5
    assert one.before_seconds is None


def test_a_rank_that_leaves_or_joins_adds_nothing_to_the_rates() -> None:
    ranks = [kernel("gemm", 1e9, 1e6, rank=rank) for rank in "012"]
    later = [kernel("gemm", 1e9 + 100, 1e6 + 1, rank=rank) for rank in "0123"]
    shown = picture("".join(ranks), "".join(later[:2] + later[3:]))
    (one,) = shown.kernels
    assert one.launches_per_second == 20
    assert one.mean_seconds == pytest.approx(0.01)
    assert launches(shown) == {"train": 20}


def test_a_program_that_began_between_two_readings_counts_from_zero() -> None:
    shown = picture(kernel("gemm", 100, 1.0), kernel("gemm", 100, 1.0) + kernel("relu", 50, 0.5, program="serve"))
    assert {one.name: one.launches_per_second for one in shown.kernels} == {"gemm": 0, "relu": 5}
    assert launches(shown) == {"serve": 5, "train": 0}


def test_a_clock_that_is_set_back_gives_no_negative_rates() -> None:
    shown = picture(kernel("gemm", 100, 1.0), kernel("gemm", 200, 2.0), every_seconds=-3600.0)
    assert shown.kernels[0].launches_per_second is None
    assert shown.age_seconds is None or shown.age_seconds >= 0


def test_a_series_without_buckets_of_its_own_leaves_the_quantiles_of_the_others() -> None:
    labels = 'kernel="gemm",program="{}"'
    finite = "".join(
        f'cuda_kernel_duration_seconds_bucket{{{labels.format("hot")},le="{bound}"}} {count}\n'
        for bound, count in (("0", 0), ("0.001", 500), ("0.002", 1000), ("64", 1000), ("+Inf", 1000))
    )
    only = f'cuda_kernel_duration_seconds_bucket{{{labels.format("cold")},le="+Inf"}} 5000\n'
    stats = read(finite + only).kernels["gemm"]
    assert stats.quantile_seconds(0.99) == pytest.approx(0.002, rel=0.02)
    assert stats.quantile_seconds(0.01) == 0.001


def test_values_that_json_cannot_hold_are_null() -> None:
    page = f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}} NaN\n" + kernel("gemm", 1, float("inf"))
    assert json.loads(json.dumps(picture(page).document(), allow_nan=False))["gpus"][0]["DCGM_FI_DEV_GPU_TEMP"] is None


def regions(program: str, **seconds: float) -> str:
    """Wall time of regions of rank 0 of a program."""
    labels = f'Hostname="n0",program="{program}",rank="0",source="cpu"'
    return "".join(
        f'cuda_region_wall_seconds_total{{{labels},region="{name}"}} {part}\n' for name, part in seconds.items()
    )


def test_regions_are_shares_of_the_steps_time_between_two_pages() -> None:
    pages = [
        steps(10, 5.0, {"data": 1.0, "other": 4.0}) + regions("train", augment=90.0, train=3.0),
        steps(30, 15.0, {"data": 2.0, "other": 13.0}) + regions("train", augment=92.0, train=9.0),
    ]
    shown = picture(*pages)
    assert dict(shown.programs[0].regions) == {"train": pytest.approx(0.6), "augment": pytest.approx(0.2)}
    assert " data 10 %; in train 60 %, augment 20 %" in drawn(shown)
    assert shown.document()["programs"][0]["regions"] == {"train": pytest.approx(0.6), "augment": pytest.approx(0.2)}


def test_regions_of_a_program_without_steps_are_shares_of_all_time() -> None:
    (serve,) = picture(regions("serve", decode=5.0), regions("serve", decode=9.0)).programs
    assert dict(serve.regions) == {"decode": pytest.approx(0.4)}
    assert serve.steps == 0
    assert picture(regions("serve", decode=5.0)).programs[0].regions == ()


def processes(number: int, rank: str = "0", gpu: str = "") -> str:
    labels = f'Hostname="n0",program="train",rank="{rank}",source="cpu",gpu="{gpu}"'
    return f"kernelcast_program_processes{{{labels}}} {number}\n"


def test_programs_of_one_name_are_counted_in_their_row() -> None:
    two = steps(10, 5.0, {"data": 1.0})
    assert "train (2 processes)" in drawn(picture(two + processes(2)), width=80)
    ranks = steps(10, 5.0) + steps(10, 5.0, rank="1")
    shown = picture(ranks + processes(1) + processes(1, rank="1"))
    assert (shown.programs[0].ranks, shown.programs[0].processes) == (2, 2)
    assert "processes" not in drawn(shown, width=80)


def test_a_process_that_works_on_two_gpus_is_one() -> None:
    page = kernel("gemm", 1, 1.0) + processes(1, gpu="0") + processes(1, gpu="1")
    assert picture(page).programs[0].processes == 1


def test_what_an_exporters_page_lacks_is_one_line() -> None:
    page = "kernelcast_exporter_ticks_total 1\n" + steps(10, 5.0, {"data": 1.0})
    text = drawn(picture(page, page), width=80)
    assert "not here  GPUs, kernels; on a bridge (port 19401): alerts, predictions, hints\n" in text
    known = recent(page)
    known.alerts = Alerts([], "")
    assert "no alert fires" in drawn(known.picture(1000.0))
    gpu = f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}} 60\n"
    assert "not here  kernels; on a bridge" in drawn(picture(page + gpu))


def test_a_bridge_says_of_each_empty_table_what_that_means() -> None:
    text = drawn(picture(UP + BRIDGE))
    assert "not here" not in text
    assert "no GPU on this page" in text


def test_rates_are_of_the_last_time_only() -> None:
    pages = [kernel("gemm", 100 * number, number) for number in range(20)]
    shown = picture(*pages, every_seconds=5.0)
    assert NOW_SECONDS <= shown.span_seconds <= NOW_SECONDS + 5
    assert shown.kernels[0].launches_per_second == 20


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (UP + BRIDGE, "no predictor reports"),
        (UP + BRIDGE + PREDICTOR, "no series has enough history"),
        (UP + BRIDGE + PREDICTOR + JUDGED.replace(" 12", " 0"), "no series has enough history"),
        (UP + BRIDGE + PREDICTOR.replace(" 1", " 0") + JUDGED, "no predictor reports"),
        (UP + BRIDGE + PREDICTOR + JUDGED, "nothing predicted for 12 series with a limit"),
        (kernel("gemm", 1, 1), "on a bridge (port 19401): alerts, predictions"),
    ],
)
def test_nothing_is_predicted_only_where_a_predictor_says_so(page: str, words: str) -> None:
    shown = drawn(picture(page))
    assert words in shown
    assert ("nothing predicted" in shown) == words.startswith("nothing predicted")


def test_before_anything_is_measured_no_word_is_calm() -> None:
    shown = drawn(Recent("a bridge").picture(1000.0))
    assert "not known yet" in shown
    for word in ("none", "nothing predicted", "0 launches"):
        assert word not in shown


def test_a_gpu_above_its_limit_is_named() -> None:
    hot = f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}} 93\nDCGM_FI_DEV_SLOWDOWN_TEMP{{{GPU}}} 87\n"
    assert "at its limit" in drawn(picture(hot))
    assert "at its limit" not in drawn(picture(hot.replace("93", "86")))
    assert "at its limit" in drawn(picture(hot.replace("GPU_TEMP{", "GPU_TEMP_CELSIUS{")))


@pytest.mark.parametrize(
    ("reasons", "level", "words"),
    [
        (0x48, "bad", "slowed by heat"),
        (0x20, "warn", "slowed by heat"),
        (0x88, "bad", "slowed by power brake"),
        (0xC8, "bad", "slowed by heat and power brake"),
        (0x08, "bad", "slowed by hardware"),
        (0x04, "warn", "near its limit"),
        ("NaN", "warn", "near its limit"),
    ],
)
def test_a_gpu_at_reduced_clocks_has_the_reason_as_its_alert_does(reasons: int | str, level: str, words: str) -> None:
    """Bits of NVML's nvmlClocksEventReasons; 0x4 is the power cap, which is normal under load."""
    page = f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}} 91\nDCGM_FI_DEV_SLOWDOWN_TEMP{{{GPU}}} 92\n"
    shown = picture(f"{page}DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{GPU}}} {reasons}\n")
    (gpu,) = shown.gpus
    assert gpu.state == (level, words)
    assert [(news.level, news.text) for news in shown.news] == [(level, f"n0 GPU 1 is {words}: 91 of 92 °C")]
    assert words in drawn(shown)


def test_a_slowed_gpu_whose_temperature_is_not_known_has_none_in_its_news() -> None:
    (news,) = picture(f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{GPU}}} 64\n").news
    assert news.text == "n0 GPU 1 is slowed by heat"


def test_a_narrow_screen_shows_the_cause_and_the_time_of_a_prediction() -> None:
    labels = 'Hostname="sim-node-0000",gpu="1",metric="DCGM_FI_DEV_GPU_TEMP",cause="thermal"'
    left = f'kernelcast_degradation_time_to_threshold_seconds{{{labels},quantile="0.5"}} 240\n'
    page = f'kernelcast_degradation_probability_ratio{{{labels},horizon="5m"}} 0.9\n{left}'
    (_, line, *_) = drawn(picture(BRIDGE + UP + PREDICTOR + page), width=80, height=12).splitlines()
    assert "thermal, in 4 min: sim-node-0000 GPU 1 DCGM_FI_DEV_GPU_TEMP" in line


def test_what_has_crossed_its_limit_stays_in_the_list() -> None:
    labels = '{Hostname="n0",gpu="1",metric="DCGM_FI_DEV_GPU_TEMP",cause="thermal"'
    page = f'kernelcast_degradation_probability_ratio{labels},horizon="5m"}} 1\n'
    page += f'kernelcast_degradation_time_to_threshold_seconds{labels},quantile="0.5"}} 0\n'
    shown = picture(page + f"kernelcast_degradation_crossed_timestamp_seconds{labels}}} 520\n")
    assert "crossed 8 min ago" in drawn(shown)
    (one,) = shown.document()["predictions"]
    assert one["crossed_seconds_ago"] == 480


def test_what_has_crossed_its_limit_is_listed_without_a_prediction_too() -> None:
    labels = '{Hostname="n0",gpu="1",metric="DCGM_FI_DEV_GPU_TEMP",cause="thermal"}'
    shown = picture(
        f"kernelcast_degradation_crossed_timestamp_seconds{labels} 990\n" + UP + BRIDGE + PREDICTOR + JUDGED
    )
    assert "crossed 10 s ago" in drawn(shown)
    assert "nothing predicted" not in drawn(shown)


def test_figures_that_are_old_say_so() -> None:
    known = recent(UP + BRIDGE + PREDICTOR + JUDGED)
    known.error = "http://x/metrics does not answer: Connection refused"
    shown = known.picture(1005.0)
    assert "these figures are older than 5 s" in drawn(shown)
    assert "nothing predicted" not in drawn(shown)


def test_old_figures_have_their_age() -> None:
    known = recent(UP + BRIDGE, UP + BRIDGE)
    known.history.changed_seconds, known.error = 1000.0, "no answer"
    assert "no answer; these figures are 95 s old" in drawn(known.picture(1095.0))


def test_a_terminal_of_80_columns_shows_which_gpu_and_which_kernel() -> None:
    """There a GPU was "sim-node-0…", and each kernel its first letter."""
    gpu = 'DCGM_FI_DEV_GPU_TEMP{Hostname="sim-node-0",gpu="1"} 93\nkernelcast_gpu_up{Hostname="sim-node-0",gpu="1"} 1\n'
    limit = 'DCGM_FI_DEV_SLOWDOWN_TEMP{Hostname="sim-node-0",gpu="1"} 87\n'
    busy = kernel("flash_attention_forward_kernel<__half, 64>", 100, 1.0, program="sim-train-0")
    labels = '{Hostname="sim-node-0",gpu="1",metric="DCGM_FI_DEV_GPU_TEMP",cause="thermal"}'
    crossed = f"kernelcast_degradation_crossed_timestamp_seconds{labels} 400\n"
    text = drawn(
        picture(gpu + limit + busy + crossed + UP + BRIDGE, gpu + limit + busy + crossed + UP + BRIDGE), width=80
    )
    for words in (
        "sim-node-0 / 1 ",
        "93/87",
        "at its limit",
        "flash_attention_f",
        "sim-node-0 GPU",
        "crossed 10 min ago",
    ):
        assert words in text, text


def test_a_bridge_whose_producers_are_gone_says_so() -> None:
    """With everything stopped it said "age of data" without an age, and "no kernels seen"."""
    shown = drawn(picture("kernelcast_bridge_series 0\n"))
    assert "no producer reports to this bridge" in shown
    assert "no kernels seen" not in shown


@pytest.mark.parametrize(
    ("alerts", "words"),
    [
        (Alerts(), "not known: no Prometheus was asked"),
        (Alerts([]), "no alert fires"),
        (Alerts([{"alertname": "KernelcastNodeDown", "severity": "critical", "Hostname": "n7"}]), "NodeDown "),
    ],
)
def test_alerts_are_those_that_fire(alerts: Alerts, words: str) -> None:
    known = recent(BRIDGE)
    known.alerts = alerts
    assert words in drawn(known.picture(1000.0))


def test_alerts_are_counted_by_node_gpu_and_program_as_on_the_dashboards() -> None:
    known, name = recent(BRIDGE), "KernelcastBreachImminent"
    kernels = [{"alertname": name, "Hostname": "n7", "gpu": "1", "program": "p", "kernel": f"k{i}"} for i in range(5)]
    known.alerts = Alerts([*kernels, {"alertname": name, "Hostname": "n7", "gpu": "2"}])
    shown = known.picture(1000.0)
    assert "alerts that fire: 2" in drawn(shown)
    assert " x2 " in drawn(shown)


def test_a_kernel_named_like_markup_is_text() -> None:
    assert "[red]gemm[/red]" in drawn(picture(kernel("[red]gemm[/red]", 1, 1)))


FOREIGN = "a[/b]\x1b[2Jz"
"""A name that a program may give: markup of rich, and an escape sequence that clears the terminal."""


@pytest.mark.parametrize("width", [80, 150])
def test_names_of_programs_and_nodes_neither_break_nor_control_the_screen(width: int) -> None:
    gpu = f'Hostname="{FOREIGN}",gpu="0"'
    page = (
        BRIDGE
        + f"DCGM_FI_DEV_GPU_UTIL{{{gpu}}} 5\n"
        + f'kernelcast_producer_up{{instance="{FOREIGN}",job="j"}} 0\n'
        + kernel(FOREIGN, 1, 1, program=FOREIGN)
        + f'kernelcast_degradation_probability{{{gpu},metric="m",cause="{FOREIGN}"}} 0.9\n'
        + OPEN.replace("train", FOREIGN)
    )
    known = recent(page)
    known.alerts = Alerts([{"alertname": f"Kernelcast{FOREIGN}", "Hostname": FOREIGN}], "")
    console = Console(width=width, file=io.StringIO(), force_terminal=True)
    console.print(Screen(known.picture(1000.0)))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a[/b]" in shown
    assert "\x1b[2J" not in shown


def times(program: str, running: float, measured: float) -> str:
    own = f'{{{GPU},program="{program}",rank="0"}}'
    return (
        f"kernelcast_probe_running_seconds_total{own} {running}\n"
        f"kernelcast_probe_measured_seconds_total{own} {measured}\n"
    )


def test_launches_and_gpu_time_of_a_program_measured_in_windows_are_those_of_wall_time() -> None:
    before = BRIDGE + kernel("gemm", 100, 1.0) + times("train", 50, 5)
    shown = picture(before, BRIDGE + kernel("gemm", 110, 1.5) + times("train", 60, 6))
    (found,) = shown.kernels
    assert (found.launches_per_second, found.mean_seconds, found.busy_ratio) == pytest.approx((10, 0.05, 0.5))
    assert launches(shown) == {"train": pytest.approx(10)}


def test_without_measured_time_between_two_pages_launches_a_second_are_unknown_not_0() -> None:
    before = BRIDGE + kernel("gemm", 100, 1.0) + times("train", 50, 5)
    shown = picture(before, BRIDGE + kernel("gemm", 100, 1.0) + times("train", 60, 5))
    (found,) = shown.kernels
    assert (found.launches_per_second, found.busy_ratio) == (None, None)
    assert launches(shown) == {"train": None}
    ended = picture(before, before)
    assert [one.launches_per_second for one in ended.kernels] == [0]


def test_the_document_is_json_with_the_same_figures() -> None:
    shown = picture(BRIDGE + kernel("gemm", 100, 1.0), BRIDGE + kernel("gemm", 200, 4.0))
    document = json.loads(json.dumps(shown.document()))
    assert document["kernels"][0]["launches_per_second"] == 10
    assert document["alerts"] is None
    assert document["alerts_unknown"]
    assert document["sources"] == ["simulated"]


def test_the_age_of_an_exporters_page_is_the_time_since_its_last_interval() -> None:
    history = History()
    for second, ticks in ((0, 5), (2, 6), (4, 6), (6, 6)):
        history.add(float(second), read(f"kernelcast_exporter_ticks_total {ticks}\n"))
    assert history.age_seconds(7.0) == 5.0


@pytest.mark.parametrize(
    "page", ["kernelcast_producer_last_sample_age_seconds 3\n", "kernelcast_exporter_ticks_total {}\n"]
)
def test_a_clock_that_is_set_back_gives_no_negative_age(page: str) -> None:
    known = Recent("a bridge")
    for second in (1000.0, 1010.0):
        known.add(second, read(page.format(second)))
    known.error = "does not answer"
    shown = known.picture(400.0)
    assert shown.age_seconds is not None
    assert shown.age_seconds >= 0
    assert "-" not in drawn(shown).partition("programs")[0]


def test_gpus_are_in_the_order_of_their_numbers() -> None:
    shown = picture(
        "".join(f'DCGM_FI_DEV_GPU_UTIL{{Hostname="n0",gpu="{number}"}} 5\n' for number in (10, 2, 0, 11, 1))
    )
    assert [one.index for one in shown.gpus] == ["0", "1", "2", "10", "11"]


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\x1c"])
def test_a_line_separator_of_unicode_is_part_of_a_label(separator: str) -> None:
    """In the text format, only a line feed ends a line."""
    page = read(f'cuda_kernel_launches_total{{kernel="a{separator}b",program="p"}} 5\n')
    assert page.kernels[f"a{separator}b"].launches == 5


HINTED = (
    'kernelcast_hint_issued_total{program="train",tunable="block",rule="r"} 2\n'
    'kernelcast_hint_outcomes_total{program="train",tunable="block",state="kept"} 1\n'
    'kernelcast_hint_measured_ratio{program="train",tunable="block"} 0.8\n'
)
OPEN = (
    'kernelcast_hint_open_timestamp_seconds{program="train",tunable="block",value="256",previous="128",state="trial",'
    'hint_id="h"} 1000\n'
    'kernelcast_hint_expected_ratio{program="train",tunable="block",hint_id="h",bound="mean"} 0.9\n'
)


def test_a_hint_that_was_kept_shows_its_measured_effect() -> None:
    assert "kept, time x0.80" in drawn(picture(HINTED))


def test_an_open_hint_shows_what_it_proposes_and_promises_and_no_earlier_outcome() -> None:
    shown = picture(HINTED + OPEN)
    assert "128 → 256, on trial, time x0.90 expected" in drawn(shown)
    (one,) = shown.document()["hints"]
    assert (one["state"], one["proposed"], one["measured_ratio"]) == ("trial", "256", None)


def test_an_open_hint_of_a_predictor_that_has_just_started_is_shown() -> None:
    assert "128 → 256, on trial" in drawn(picture(OPEN))


def test_the_slower_kernel_comes_first_when_sorted_by_change() -> None:
    pages = kernel("a", 100, 1) + kernel("b", 100, 1), kernel("a", 200, 3) + kernel("b", 200, 5)
    assert [one.name for one in picture(*pages).kernels] == ["b", "a"]
    assert [one.name for one in picture(*pages, sort="name").kernels] == ["a", "b"]


def test_a_program_that_has_ended_says_so_and_is_no_news() -> None:
    page = ended(steps(300, 30.0, {"data": 15.0, "forward": 15.0}))
    text = drawn(picture(page, page))
    assert "has ended: data 50 %, forward 50 %" in text
    assert "is input-bound" not in text


def test_the_forward_of_a_program_without_a_seen_loader_may_be_data() -> None:
    page = steps(300, 30.0, {"forward": 27.0, "backward": 3.0})
    assert "forward or data 90 %, backward 10 %" in drawn(picture(page))


def test_a_first_page_says_nothing_of_the_present_of_a_program_that_may_have_ended() -> None:
    """It has no rates yet, and the totals of programs that ended before the exporter's restart."""
    page = steps(300, 30.0, {"data": 15.0, "forward": 15.0})
    shown = picture(ended(page))
    assert "input-bound" not in drawn(shown)
    assert "data 50 %, forward 50 %" in drawn(shown)
    assert not shown.news
    assert not shown.document()["programs"][0]["runs"]
    assert "is input-bound" in drawn(picture(page)), "one that is in a phase runs"


def ranks(slow: float) -> tuple[str, str]:
    """Two pages of three ranks that make 10 steps of 1 s between them; rank 1 works for so long outside backward."""
    own = {"0": 0.2, "1": slow, "2": 0.25}

    def page(done: float) -> str:
        return "".join(
            steps(done, done, {"forward": done * seconds, "backward": done * (1.0 - seconds)}, rank=rank)
            for rank, seconds in own.items()
        )

    return page(100.0), page(110.0)


def test_the_rank_that_the_others_wait_for_is_named() -> None:
    shown = picture(*ranks(slow=0.6))
    words = "rank 1 holds the others up: 600.00 ms a step outside backward, they take 225.00 ms"
    assert shown.document()["programs"][0]["verdict"] == words
    assert words in drawn(shown)


def test_ranks_that_differ_little_are_not_compared() -> None:
    assert "holds the others up" not in drawn(picture(*ranks(slow=0.3)))


def test_the_filter_keeps_what_has_the_text_in_kernel_or_program() -> None:
    page = kernel("gemm", 1, 1) + kernel("nccl", 1, 1) + kernel("x", 1, 1, program="gem")
    assert {one.name for one in picture(page, text="GEM").kernels} == {"gemm", "x"}


def test_a_program_without_a_gpu_is_shown_with_its_steps_items_and_phases() -> None:
    shown = picture(
        steps(100, 50.0, {"data": 30.0, "forward": 20.0}, items=1000),
        steps(120, 60.0, {"data": 36.2, "forward": 23.8}, items=1200),
    )
    (one,) = shown.programs
    assert (one.steps_per_second, one.items_per_second, one.step_seconds) == pytest.approx((2.0, 20.0, 0.5))
    assert dict(one.phases) == pytest.approx({"data": 0.62, "forward": 0.38})
    assert "input-bound: data 62 %, forward 38 %" in drawn(shown, width=80)
    assert "train is input-bound: 62 % of the step waits for data" in drawn(shown)
    assert shown.document()["programs"][0]["verdict"] == "input-bound: 62 % of the step waits for data"


def test_ranks_of_a_program_are_one_program_whose_items_add_up_and_whose_steps_do_not() -> None:
    before, after = ("".join(steps(n, n / 2, rank=rank, items=8 * n) for rank in "01") for n in (100, 120))
    (one,) = picture(before, after).programs
    assert (one.ranks, one.steps, one.steps_per_second, one.items_per_second) == (2, 120, 2.0, 32.0)


def test_a_rank_that_joins_with_an_old_total_adds_nothing_to_the_rates() -> None:
    (one,) = picture(steps(100, 50.0), steps(120, 60.0) + steps(1e9, 5e8, rank="1")).programs
    assert one.steps_per_second == 2.0


def test_steps_a_second_are_those_between_two_reports_on_pages_that_come_more_often() -> None:
    """A program of 2 steps a second, reported every 10 s, was seen with 0, 10 and 3 steps a second."""
    labels = 'Hostname="n0",program="train",rank="0",source="cpu"'
    history, rates = History(), []
    for now in range(1003, 1040, 2):
        last = now // 10 * 10 - 0.5
        page = steps(2 * last, last, items=16 * last)
        page += f"kernelcast_program_last_progress_timestamp_seconds{{{labels}}} {last}\n"
        history.add(now, read(page))
        (program,) = history.programs(now)
        rates.append(program.steps_per_second)
    assert rates[:4] == [None] * 4
    assert rates[4:] == [2.0] * 15


def test_a_program_that_makes_no_step_between_two_pages_keeps_its_step_time_and_phases() -> None:
    (one,) = picture(steps(10, 600.0, {"data": 600.0}), steps(10, 600.0, {"data": 600.0})).programs
    assert (one.steps_per_second, one.step_seconds, one.phases) == (0.0, 60.0, (("data", 1.0),))


def test_a_program_that_stands_still_is_the_worst_news() -> None:
    labels = 'Hostname="n0",program="train",rank="0",source="cpu"'
    page = steps(10, 5.0) + f'kernelcast_program_phase{{{labels},phase="forward"}} 1\n'
    page += f"kernelcast_program_last_progress_timestamp_seconds{{{labels}}} "
    text = drawn(picture(f"{page}400\n"))
    assert "train has made no step for 10 min" in text
    assert "no step for 10 min, in forward" in text
    assert "no step" not in drawn(picture(f"{page}990\n"))


def test_two_jobs_of_one_name_are_two_programs() -> None:
    labels = 'Hostname="n0",program="train",rank="{}",source="cpu"'
    jobs = "".join(f'kernelcast_program_job_info{{{labels.format(rank)},job="j{rank}"}} 1\n' for rank in "01")
    shown = picture(steps(1, 1.0) + steps(1, 1.0, rank="1") + jobs)
    assert [one.name for one in shown.programs] == ["train (j0)", "train (j1)"]


PREDICTED = (
    'kernelcast_degradation_probability_ratio{{Hostname="n0",gpu="1",metric="DCGM_FI_DEV_GPU_TEMP",cause="thermal",'
    'horizon="5m"}} {}\n'
)


@pytest.mark.parametrize(
    ("probabilities", "shown"),
    [((0.3,), 0), ((0.6,), 1), ((0.6, 0.3), 1), ((0.6, 0.19), 0), ((0.6, 0.19, 0.3), 0), ((0.6, None), 1)],
)
def test_what_was_shown_as_predicted_stays_until_its_probability_is_below_a_fifth(
    probabilities: tuple[float | None, ...], shown: int
) -> None:
    pages = [BRIDGE + ("" if each is None else PREDICTED.format(each)) for each in probabilities]
    assert len(picture(*pages, every_seconds=2.0).predictions) == shown


def test_a_prediction_that_has_long_had_no_value_is_shown_no_more() -> None:
    assert not picture(PREDICTED.format(0.9), *[BRIDGE] * 8).predictions


def test_a_value_that_was_kept_is_shown_as_long_as_the_program_has_it() -> None:
    present = 'kernelcast_tunable_info{program="train",tunable="block",value="128",allowed="48,128"} 1\n'
    shown = picture(*[HINTED + present] * 60)
    assert "train block" in drawn(shown)
    assert "kept 128, time x0.80" in drawn(shown)


def test_the_worst_news_comes_first() -> None:
    hot = f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}} 93\nDCGM_FI_DEV_SLOWDOWN_TEMP{{{GPU}}} 87\n"
    bound = steps(100, 50.0, {"data": 25.0, "forward": 25.0})
    known = recent(UP + BRIDGE + bound + hot)
    known.alerts = Alerts([{"alertname": "KernelcastGpuHot", "severity": "warning", "Hostname": "n0", "gpu": "1"}])
    news = known.picture(1000.0).news
    assert [one.level for one in news] == ["bad", "warn", "warn"]
    assert news[0].text == "n0 GPU 1 is at its limit: 93 of 87 °C"
