"""`kernelcast top`: rates, changes, empty lists, keys, and errors."""

import fcntl
import io
import json
import os
import urllib.error
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kernelcast.cli.app import run
from kernelcast.cli.top import target
from kernelcast.cli.top.command import Keys
from kernelcast.cli.top.page import read
from kernelcast.cli.top.rates import NOW_SECONDS, History
from kernelcast.cli.top.screen import render
from kernelcast.cli.top.target import ServerCredentials, api_url, base_url, firing_alerts
from kernelcast.cli.top.view import Alerts, TopView
from kernelcast.wire.errors import ConfigurationError, PageError

GPU = 'Hostname="n0",gpu="1",source="simulated"'
UP = 'kernelcast_producer_up{instance="n0",job="kernelcast-exporter"} 1\n'
JUDGED = 'kernelcast_forecast_judged_series{instance="p",job="kernelcast-predictor"} 12\n'
PREDICTOR = 'kernelcast_producer_up{instance="p",job="kernelcast-predictor"} 1\n'
BRIDGE = "kernelcast_bridge_ready 1\n"
FORECAST = 'kernelcast_forecast_value{metric="m",bound="mean"} 1\n'


def kernel(name: str, launches: float, seconds: float, program: str = "train", rank: str = "0") -> str:
    labels = f'{{{GPU},kernel="{name}",program="{program}",rank="{rank}"}}'
    return (
        f"cuda_kernel_launches_total{labels} {launches}\n"
        f"cuda_kernel_duration_seconds_count{labels} {launches}\n"
        f"cuda_kernel_duration_seconds_sum{labels} {seconds}\n"
    )


def view(*pages: str, every_seconds: float = 10.0) -> TopView:
    """A view after these pages."""
    made = TopView("a bridge")
    for number, page in enumerate(pages):
        made.now_seconds = 1000 + every_seconds * number
        made.history.add(made.now_seconds, read(page))
    return made


def screen(shown: TopView, *, width: int = 150) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render(shown))
    return console.export_text()


def test_a_kernel_is_shown_with_its_rate_now_and_against_before() -> None:
    (one,) = view(kernel("gemm", 100, 1.0), kernel("gemm", 200, 4.0)).kernels()
    assert one.launches_per_second == 10
    assert one.mean_seconds == pytest.approx(0.03)
    assert one.before_seconds == pytest.approx(0.01)
    assert one.change_ratio == pytest.approx(3.0)
    assert one.busy_ratio == pytest.approx(0.3)


def test_before_the_second_reading_there_is_no_rate_rather_than_zero() -> None:
    shown = view(kernel("gemm", 100, 1.0))
    assert shown.kernels()[0].launches_per_second is None
    assert "rates after the second reading" in screen(shown)


def test_a_program_that_began_again_counts_from_zero() -> None:
    (one,) = view(kernel("gemm", 1000, 10.0), kernel("gemm", 50, 1.0)).kernels()
    assert one.launches_per_second == 5
    assert one.before_seconds is None


def test_a_rank_that_leaves_or_joins_adds_nothing_to_the_rates() -> None:
    ranks = [kernel("gemm", 1e9, 1e6, rank=rank) for rank in "012"]
    later = [kernel("gemm", 1e9 + 100, 1e6 + 1, rank=rank) for rank in "0123"]
    shown = view("".join(ranks), "".join(later[:2] + later[3:]))
    (one,) = shown.kernels()
    assert one.launches_per_second == 20
    assert one.mean_seconds == pytest.approx(0.01)
    assert shown.history.programs() == {"train": 20}


def test_a_program_that_began_between_two_readings_counts_from_zero() -> None:
    shown = view(kernel("gemm", 100, 1.0), kernel("gemm", 100, 1.0) + kernel("relu", 50, 0.5, program="serve"))
    assert {one.name: one.launches_per_second for one in shown.kernels()} == {"gemm": 0, "relu": 5}
    assert shown.history.programs() == {"serve": 5, "train": 0}


def test_a_clock_that_is_set_back_gives_no_negative_rates() -> None:
    shown = view(kernel("gemm", 100, 1.0), kernel("gemm", 200, 2.0), every_seconds=-3600.0)
    assert shown.kernels()[0].launches_per_second is None
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
    assert json.loads(json.dumps(view(page).document(), allow_nan=False))["gpus"][0]["DCGM_FI_DEV_GPU_TEMP"] is None


@pytest.mark.parametrize("keys", ["\x1bOP", "\x1bOQ", "\x1b[A", "\x1b[15~", "\x1b[1;5C", "\x1b[M !!"])
def test_function_keys_arrows_and_the_mouse_do_nothing(keys: str) -> None:
    controls = TopView("a bridge").controls
    controls.text = "gemm"
    assert not controls.press(keys)
    assert (controls.text, controls.paused, controls.sort) == ("gemm", False, "time")


def test_rates_are_of_the_last_time_only() -> None:
    pages = [kernel("gemm", 100 * number, number) for number in range(20)]
    shown = view(*pages, every_seconds=5.0)
    assert NOW_SECONDS <= shown.history.span_seconds <= NOW_SECONDS + 5
    assert shown.kernels()[0].launches_per_second == 20


def test_the_slower_kernel_comes_first_when_sorted_by_change() -> None:
    shown = view(kernel("a", 100, 1) + kernel("b", 100, 1), kernel("a", 200, 3) + kernel("b", 200, 5))
    assert [one.name for one in shown.kernels()] == ["b", "a"]
    shown.controls.sort = "name"
    assert [one.name for one in shown.kernels()] == ["a", "b"]


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (UP + BRIDGE, "no predictor reports"),
        (UP + BRIDGE + PREDICTOR + FORECAST, "no series has enough history"),
        (UP + BRIDGE + PREDICTOR + JUDGED.replace(" 12", " 0"), "no series has enough history"),
        (UP + BRIDGE + PREDICTOR.replace(" 1", " 0") + JUDGED, "no predictor reports"),
        (UP + BRIDGE + PREDICTOR + JUDGED, "nothing predicted for 12 series with a limit"),
        (kernel("gemm", 1, 1), "on a bridge's page"),
    ],
)
def test_nothing_is_predicted_only_where_a_predictor_says_so(page: str, words: str) -> None:
    shown = screen(view(page))
    assert words in shown
    assert ("nothing predicted" in shown) == words.startswith("nothing predicted")


def test_before_anything_is_measured_no_word_is_calm() -> None:
    shown = screen(TopView("a bridge"))
    assert "not known yet" in shown
    for word in ("none", "nothing predicted", "0 launches"):
        assert word not in shown


def test_a_gpu_above_its_limit_is_named() -> None:
    hot = f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}} 93\nDCGM_FI_DEV_SLOWDOWN_TEMP{{{GPU}}} 87\n"
    assert "at its limit" in screen(view(hot))
    assert "at its limit" not in screen(view(hot.replace("93", "86")))


def test_what_has_crossed_its_limit_stays_in_the_list() -> None:
    labels = '{Hostname="n0",gpu="1",metric="DCGM_FI_DEV_GPU_TEMP",cause="thermal"'
    page = f'kernelcast_degradation_probability_ratio{labels},horizon="5m"}} 1\n'
    page += f'kernelcast_degradation_time_to_threshold_seconds{labels},quantile="0.5"}} 0\n'
    shown = view(page + f"kernelcast_degradation_crossed_timestamp_seconds{labels}}} 520\n")
    shown.now_seconds = 1000.0
    assert "crossed 8 min ago" in screen(shown)
    (one,) = shown.document()["predictions"]
    assert one["crossed_seconds_ago"] == 480


def test_what_has_crossed_its_limit_is_listed_without_a_prediction_too() -> None:
    labels = '{Hostname="n0",gpu="1",metric="DCGM_FI_DEV_GPU_TEMP",cause="thermal"}'
    shown = view(f"kernelcast_degradation_crossed_timestamp_seconds{labels} 990\n" + UP + BRIDGE + PREDICTOR + JUDGED)
    shown.now_seconds = 1000.0
    assert "crossed 10 s ago" in screen(shown)
    assert "nothing predicted" not in screen(shown)


def test_figures_that_are_old_say_so() -> None:
    shown = view(UP + BRIDGE + PREDICTOR + JUDGED)
    shown.error = "http://x/metrics does not answer: Connection refused"
    shown.now_seconds += 5
    assert "these figures are older than 5.00 s" in screen(shown)
    assert "nothing predicted" not in screen(shown)


def test_old_figures_have_their_age() -> None:
    shown = view(UP + BRIDGE, UP + BRIDGE)
    shown.history.changed_seconds, shown.error, shown.now_seconds = 1000.0, "no answer", 1095.0
    assert "no answer; these figures are 95.00 s old" in screen(shown)


def test_a_terminal_of_80_columns_shows_which_gpu_and_which_kernel() -> None:
    """There a GPU was "sim-node-0…", and each kernel its first letter."""
    gpu = 'DCGM_FI_DEV_GPU_TEMP{Hostname="sim-node-0",gpu="1"} 93\nkernelcast_gpu_up{Hostname="sim-node-0",gpu="1"} 1\n'
    limit = 'DCGM_FI_DEV_SLOWDOWN_TEMP{Hostname="sim-node-0",gpu="1"} 87\n'
    busy = kernel("flash_attention_forward_kernel<__half, 64>", 100, 1.0, program="sim-train-0")
    labels = '{Hostname="sim-node-0",gpu="1",metric="DCGM_FI_DEV_GPU_TEMP",cause="thermal"}'
    crossed = f"kernelcast_degradation_crossed_timestamp_seconds{labels} 400\n"
    text = screen(
        view(gpu + limit + busy + crossed + UP + BRIDGE, gpu + limit + busy + crossed + UP + BRIDGE), width=80
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
    shown = screen(view("kernelcast_bridge_series 0\n"))
    assert "no producer reports to this bridge" in shown
    assert "no kernels seen" not in shown


@pytest.mark.parametrize(
    ("alerts", "words"),
    [
        (Alerts(), "not known: no Prometheus was asked"),
        (Alerts([]), "no alert fires; the heartbeat arrives"),
        (Alerts([{"alertname": "KernelcastNodeDown", "severity": "critical", "Hostname": "n7"}]), " NodeDown "),
    ],
)
def test_alerts_are_those_that_fire(alerts: Alerts, words: str) -> None:
    shown = view(BRIDGE)
    shown.alerts = alerts
    assert words in screen(shown)


def test_alerts_are_counted_by_node_gpu_and_program_as_on_the_dashboards() -> None:
    shown, name = view(BRIDGE), "KernelcastBreachImminent"
    kernels = [{"alertname": name, "Hostname": "n7", "gpu": "1", "program": "p", "kernel": f"k{i}"} for i in range(5)]
    shown.alerts = Alerts([*kernels, {"alertname": name, "Hostname": "n7", "gpu": "2"}])
    assert "alerts that fire: 2" in screen(shown)
    assert " x2 " in screen(shown)


def prometheus(monkeypatch: pytest.MonkeyPatch, *alerts: dict[str, str]) -> None:
    body = json.dumps({"data": {"result": [{"metric": each, "value": [0, "1"]} for each in alerts]}})
    monkeypatch.setattr(target, "get", lambda _url, _access: body)


def test_without_the_heartbeat_an_empty_answer_is_not_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    prometheus(monkeypatch)
    assert firing_alerts("http://prometheus/api/v1", ServerCredentials()) is None
    prometheus(monkeypatch, {"alertname": "Watchdog"})
    assert firing_alerts("http://prometheus/api/v1", ServerCredentials()) == []
    only_mutes = {"alertname": "KernelcastAllBridgesDown", "severity": "none"}
    prometheus(monkeypatch, {"alertname": "Watchdog"}, only_mutes, {"alertname": "KernelcastGpuHot"})
    assert firing_alerts("http://prometheus/api/v1", ServerCredentials()) == [{"alertname": "KernelcastGpuHot"}]


@pytest.mark.parametrize(
    "body", ['{"data": {"result": [1]}}', '{"data": {"result": 1}}', '{"data": {"result": [{}]}}', "[]"]
)
def test_an_answer_that_is_not_prometheus_is_an_error_with_a_remedy(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "get", lambda _url, _access: body)
    with pytest.raises(PageError, match="is not the API of a Prometheus"):
        firing_alerts("http://other/api/v1", ServerCredentials())


def test_keys_sort_pause_filter_and_quit() -> None:
    controls = view().controls
    assert not controls.press("s")
    assert controls.sort == "change"
    controls.press("p")
    assert controls.paused
    controls.press("fgeq\x7fm\r")
    assert (controls.text, controls.typing) == ("gem", False)
    controls.press("\x1b")
    assert controls.text == ""
    assert controls.press("q")


def test_the_filter_keeps_what_has_the_text_in_kernel_or_program() -> None:
    shown = view(kernel("gemm", 1, 1) + kernel("nccl", 1, 1) + kernel("x", 1, 1, program="gem"))
    shown.controls.text = "GEM"
    assert {one.name for one in shown.kernels()} == {"gemm", "x"}


def test_a_kernel_named_like_markup_is_text() -> None:
    assert "[red]gemm[/red]" in screen(view(kernel("[red]gemm[/red]", 1, 1)))


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
    shown = view(page)
    shown.alerts = Alerts([{"alertname": f"Kernelcast{FOREIGN}", "Hostname": FOREIGN}], "")
    console = Console(width=width, file=io.StringIO(), force_terminal=True)
    console.print(render(shown))
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a[/b]" in drawn
    assert "\x1b[2J" not in drawn


def times(program: str, running: float, measured: float) -> str:
    own = f'{{{GPU},program="{program}",rank="0"}}'
    return (
        f"kernelcast_probe_running_seconds_total{own} {running}\n"
        f"kernelcast_probe_measured_seconds_total{own} {measured}\n"
    )


def test_launches_and_gpu_time_of_a_program_measured_in_windows_are_those_of_wall_time() -> None:
    before = BRIDGE + kernel("gemm", 100, 1.0) + times("train", 50, 5)
    shown = view(before, BRIDGE + kernel("gemm", 110, 1.5) + times("train", 60, 6))
    (found,) = shown.kernels()
    assert (found.launches_per_second, found.mean_seconds, found.busy_ratio) == pytest.approx((10, 0.05, 0.5))
    assert shown.history.programs() == {"train": pytest.approx(10)}


def test_without_measured_time_between_two_pages_launches_a_second_are_unknown_not_0() -> None:
    before = BRIDGE + kernel("gemm", 100, 1.0) + times("train", 50, 5)
    shown = view(before, BRIDGE + kernel("gemm", 100, 1.0) + times("train", 60, 5))
    (found,) = shown.kernels()
    assert (found.launches_per_second, found.busy_ratio) == (None, None)
    assert shown.history.programs() == {"train": None}
    ended = view(before, before)
    assert [one.launches_per_second for one in ended.kernels()] == [0]


def test_the_document_is_json_with_the_same_figures() -> None:
    shown = view(BRIDGE + kernel("gemm", 100, 1.0), BRIDGE + kernel("gemm", 200, 4.0))
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
    shown = TopView("a bridge")
    for second in (1000.0, 1010.0):
        shown.history.add(second, read(page.format(second)))
    shown.now_seconds, shown.error = 400.0, "does not answer"
    assert shown.age_seconds is not None
    assert shown.age_seconds >= 0
    assert "-" not in screen(shown).partition("╭")[0]


@pytest.mark.parametrize("address", ["", "x y", "ftp://x", "http://", "http://user:pw@x:1", "x:port", "http://[::1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    for url_of in (base_url, api_url):
        with pytest.raises(ConfigurationError, match="is not an address"):
            url_of(address)


@pytest.mark.parametrize("address", ["a..b:1", "h" * 70 + ".x:1", "\udcff:1", "x\x00:1"])
def test_a_host_that_cannot_be_looked_up_is_an_error_without_a_traceback(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", address, "--once"]) in (1, 2)
    assert capsys.readouterr().err.startswith("kernelcast: ")


def test_a_password_file_that_is_no_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    options = ["--username", "u", "--password-file", str(tmp_path / "password")]
    assert run(["top", "bridge:1", "--once", *options]) == 2
    assert f"--password-file {tmp_path / 'password'} cannot be read" in capsys.readouterr().err


def test_a_prometheus_that_asks_for_a_user_is_named_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.HTTPError("u", 401, "Unauthorized", {}, None)  # type: ignore[arg-type]

    monkeypatch.setattr(target, "open_url", refuse)
    with pytest.raises(PageError, match="give --prometheus-username and --prometheus-password-file"):
        firing_alerts("http://prometheus:9090/api/v1", ServerCredentials(option_prefix="--prometheus-"))


@pytest.mark.parametrize(
    ("prometheus", "asked"),
    [
        ("prometheus:9090", "http://prometheus:9090/api/v1/query"),
        ("site:80/prometheus", "http://site:80/prometheus/api/v1/query"),
        ("https://site/prometheus/", "https://site/prometheus/api/v1/query"),
        ("https://site/mimir/prometheus?x=1", "https://site/mimir/prometheus/api/v1/query"),
        ("http://prometheus:9090/graph?g0.expr=up", "http://prometheus:9090/api/v1/query"),
        ("prometheus:9090/query", "http://prometheus:9090/api/v1/query"),
        ("https://site/prometheus/alerts/", "https://site/prometheus/api/v1/query"),
        ("https://site/prometheus/api/v1/", "https://site/prometheus/api/v1/query"),
        ("https://site/prometheus/api/v1/query?query=up", "https://site/prometheus/api/v1/query"),
        ("https://site/my-graph", "https://site/my-graph/api/v1/query"),
    ],
)
def test_a_prometheus_below_a_path_is_asked_there(
    prometheus: str, asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    urls: list[str] = []

    def answer(url: str, _access: ServerCredentials) -> str:
        urls.append(url.partition("?")[0])
        return '{"data": {"result": []}}' if "/api/" in url else BRIDGE

    monkeypatch.setattr("kernelcast.cli.top.command.get", answer)
    monkeypatch.setattr(target, "get", answer)
    monkeypatch.setattr("kernelcast.cli.top.command.time.sleep", lambda _seconds: None)
    assert run(["top", "bridge:1", "--once", "--json", "--prometheus", prometheus]) == 0
    assert asked in urls
    capsys.readouterr()


@pytest.mark.parametrize(
    ("prometheus", "options", "user"),
    [
        ("bridge:1", [], "u"),
        ("prometheus:9090", [], ""),
        ("https://bridge:1", [], ""),
        ("bridge:10", [], ""),
        ("prometheus:9090", ["--prometheus-username", "p"], "p"),
        ("bridge:1", ["--prometheus-username", "p"], "p"),
    ],
)
def test_each_server_gets_its_own_password_alone(
    prometheus: str, options: list[str], user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    users: dict[str, str] = {}

    def answer(url: str, access: ServerCredentials) -> str:
        users["api" if "/api/" in url else "page"] = access.username
        return '{"data": {"result": []}}' if "/api/" in url else BRIDGE

    monkeypatch.setattr("kernelcast.cli.top.command.get", answer)
    monkeypatch.setattr(target, "get", answer)
    monkeypatch.setattr("kernelcast.cli.top.command.time.sleep", lambda _seconds: None)
    access = ["--username", "u", "--prometheus", prometheus, *options]
    assert run(["top", "bridge:1", "--once", "--json", *access]) == 0
    assert users == {"page": "u", "api": user}


def test_gpus_are_in_the_order_of_their_numbers() -> None:
    shown = view("".join(f'DCGM_FI_DEV_GPU_UTIL{{Hostname="n0",gpu="{number}"}} 5\n' for number in (10, 2, 0, 11, 1)))
    assert [index for _, index, _ in shown.gpus()] == ["0", "1", "2", "10", "11"]


def test_a_path_in_the_address_is_left_out() -> None:
    assert base_url("https://bridge:19401/metrics?x=1") == "https://bridge:19401"
    assert base_url("bridge:19401") == "http://bridge:19401"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            urllib.error.URLError(ConnectionRefusedError(111, "Connection refused")),
            "does not answer: Connection refused",
        ),
        (urllib.error.URLError(TimeoutError("timed out")), "no answer within 5 s"),
        (urllib.error.HTTPError("u", 401, "Unauthorized", {}, None), "--username and --password-file"),  # type: ignore[arg-type]
        (urllib.error.HTTPError("u", 404, "Not Found", {}, None), "answered 404 Not Found"),  # type: ignore[arg-type]
        (urllib.error.HTTPError("u", 302, "a loop:\nFound", {}, None), "answered 302 a loop: Found"),  # type: ignore[arg-type]
    ],
)
def test_an_address_that_does_not_answer_is_an_error_with_the_reason(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(target, "open_url", refuse)
    assert run(["top", "bridge:19401", "--once"]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_page_of_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernelcast.cli.top.command.get", lambda *_: "go_goroutines 5\n")
    assert run(["top", "other:1", "--once"]) == 1
    assert "has no metrics of kernelcast" in capsys.readouterr().err


@pytest.mark.parametrize("page", ['DCGM_FI_DEV_GPU_TEMP{gpu="0"', JUDGED.replace(" 12", " +Inf")])
def test_a_page_that_is_cut_or_has_no_counts_is_refused(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernelcast.cli.top.command.get", lambda *_: page)
    assert run(["top", "bridge:19401", "--once"]) == 1
    assert "is no text exposition" in capsys.readouterr().err


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\x1c"])
def test_a_line_separator_of_unicode_is_part_of_a_label(separator: str) -> None:
    """In the text format, only a line feed ends a line."""
    page = read(f'cuda_kernel_launches_total{{kernel="a{separator}b",program="p"}} 5\n')
    assert page.kernels[f"a{separator}b"].launches == 5


@pytest.mark.parametrize(
    "options", [["--interval", "0.1"], ["--interval", "nan"], ["--sort", "size"], ["--json"]], ids=" ".join
)
def test_an_option_that_makes_no_sense_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "bridge:1", *options]) == 2
    assert options[0] in capsys.readouterr().err


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
    assert "train block: kept, kernel time x0.80" in screen(view(HINTED))


def test_an_open_hint_shows_what_it_proposes_and_promises_and_no_earlier_outcome() -> None:
    shown = view(HINTED + OPEN)
    assert "train block: 128 → 256, on trial, kernel time x0.90 expected" in screen(shown)
    (one,) = shown.document()["hints"]
    assert (one["state"], one["proposed"], one["measured_ratio"]) == ("trial", "256", None)


def test_an_open_hint_of_a_predictor_that_has_just_started_is_shown() -> None:
    assert "train block: 128 → 256, on trial" in screen(view(OPEN))


@pytest.mark.parametrize("lowest", [0, 1_024], ids=["few files open", "many files open"])
def test_a_terminal_that_was_closed_ends_the_keys(lowest: int) -> None:
    """`kernelcast top` went on without a terminal, and drew as fast as it could."""
    short, writer = os.pipe()
    reader = fcntl.fcntl(short, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(short)
    os.write(writer, b"q")
    keys = Keys(reader)
    assert keys(0.0) == "q"
    assert keys(0.0) == ""
    os.close(writer)
    with pytest.raises(EOFError):
        keys(0.0)
    os.close(reader)
