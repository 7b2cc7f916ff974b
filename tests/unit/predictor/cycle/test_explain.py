"""Explanations of series, and changed settings, on a whole engine without Kafka."""

import pytest
from tests.unit.predictor.conftest import START_SECONDS, Fleet, device_subject, kernel_subject

from kernelcast.predictor import reloading
from kernelcast.predictor.explain import explain, parse
from kernelcast.predictor.reloading import RELOADED
from kernelcast.predictor.settings import LimitSettings, PredictorSettings, SeriesMatcher
from kernelcast.runtime.reloading import restart_needed
from kernelcast.wire.errors import ConfigurationError

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"


def hot(fleet: Fleet, *, seconds: int = 70) -> None:
    fleet.device("DCGM_FI_DEV_SLOWDOWN_TEMP", lambda _: 90.0)
    for gpu, level in (("0", 91.0), ("1", 60.0)):
        fleet.device(TEMPERATURE, lambda second, level=level: level + second % 2, gpu=gpu)  # type: ignore[misc]
    fleet.device("DCGM_FI_DEV_GPU_UTIL", lambda _: 50.0)
    fleet.run(seconds)


@pytest.mark.slow
def test_a_passed_limit_is_explained_with_its_origin(fleet: Fleet) -> None:
    hot(fleet)
    (found,) = explain(fleet.cycle, fleet.windows, f'{TEMPERATURE}{{gpu="0"}}')
    assert found["limit"] == 90.0
    assert found["limit_from"] == "DCGM_FI_DEV_SLOWDOWN_TEMP"
    assert found["decided"] == "the limit is passed"
    assert found["alert"] is True
    assert found["alert_since_seconds"] > START_SECONDS
    assert set(found["breach_probability"].values()) == {1.0}
    assert found["newest_seconds"] == START_SECONDS + 70


@pytest.mark.slow
def test_a_limit_that_was_passed_is_no_probable_breach_while_it_waits_to_be_clearly_back(fleet: Fleet) -> None:
    fleet.device("DCGM_FI_DEV_SLOWDOWN_TEMP", lambda _: 90.0)
    fleet.device(TEMPERATURE, lambda second: 91.0 if 100 <= second < 108 else 60.0 + second % 2)
    decided = []
    while fleet.second < 150:
        fleet.run(5)
        (found,) = explain(fleet.cycle, fleet.windows, TEMPERATURE)
        decided.append((found["alert"], found["decided"]))
    assert (True, "the limit is passed") in decided
    waiting = [text for alert, text in decided if alert and text != "the limit is passed"]
    assert waiting
    assert all(text.startswith("the limit was passed; the alert ends after 6 evaluations") for text in waiting)
    assert decided[-1] == (False, "no breach is probable")


@pytest.mark.slow
def test_the_time_to_a_limit_counts_down_between_two_evaluations(fleet: Fleet) -> None:
    fleet.device("DCGM_FI_DEV_SLOWDOWN_TEMP", lambda _: 90.0)
    fleet.device(TEMPERATURE, lambda second: 50.0 + 0.25 * second)
    fleet.run(120)
    left = {}
    while fleet.second < 140:
        reports = fleet.run(1)
        (found,) = explain(fleet.cycle, fleet.windows, TEMPERATURE)
        left[fleet.second] = found["seconds_to_limit"]["0.5"]
        predictions = [prediction for report in reports for prediction in report.predictions]
        published = [prediction.degradation for prediction in predictions if prediction.degradation is not None]
        assert [degradation.seconds[0.5] for degradation in published] == [left[fleet.second]] * len(reports)
    # A cycle of five seconds evaluates; the limit is reached at 160 s.
    assert [left[second] - left[second + 1] for second in range(130, 134)] == [1.0] * 4
    assert all(abs(seconds - (160 - second)) < 2.5 for second, seconds in left.items())


@pytest.mark.slow
def test_the_limit_of_memory_is_a_share_of_its_size(fleet: Fleet) -> None:
    fleet.device("DCGM_FI_DEV_FB_USED", lambda _: 1_000.0)
    fleet.device("DCGM_FI_DEV_FB_FREE", lambda _: 79_000.0)
    fleet.run(60)
    (found,) = explain(fleet.cycle, fleet.windows, "DCGM_FI_DEV_FB_USED")
    assert (found["limit"], found["limit_from"]) == (77_600.0, "0.97 times the size of the memory")


def test_a_series_without_a_limit_and_one_with_too_little_history_say_so(fleet: Fleet) -> None:
    hot(fleet, seconds=21)
    (utilisation,) = explain(fleet.cycle, fleet.windows, "DCGM_FI_DEV_GPU_UTIL")
    assert "predictor.limits" in utilisation["limit_from"]
    (cool,) = explain(fleet.cycle, fleet.windows, f'{TEMPERATURE}{{gpu="1"}}')
    assert cool["decided"] == "abstains: the limit is not known yet"
    assert explain(fleet.cycle, fleet.windows, "unknown_metric") == []


@pytest.mark.slow
def test_a_kernel_that_is_slow_with_its_clock_says_why_nothing_is_published(fleet: Fleet) -> None:
    fleet.device("DCGM_FI_DEV_SM_CLOCK", lambda second: 1410.0 if second < 100 else 900.0)
    fleet.add(kernel_subject("gemm"), lambda second: 1e-3 if second < 100 else 1.56e-3)
    fleet.run(120)
    (found,) = explain(fleet.cycle, fleet.windows, 'cuda_kernel_duration_seconds{kernel="gemm"}')
    assert not fleet.alarms
    assert found["alert"] is False
    assert found["decided"].startswith("abstains (clock_fell): the clock of its GPU")


def test_selectors_are_read_as_prometheus_writes_them() -> None:
    assert parse('up{a="1", b="x\\"y"}') == ("up", {"a": "1", "b": 'x"y'})
    assert parse("up{}") == ("up", {})
    assert parse(r'up{a="two\nlines", b="C:\\new"}') == ("up", {"a": "two\nlines", "b": r"C:\new"})
    for wrong in ("", "up{", "up{a=1}", 'up{a="1"'):
        with pytest.raises(ConfigurationError, match="METRIC"):
            parse(wrong)


@pytest.mark.slow
def test_a_changed_threshold_and_selection_apply_with_the_next_cycle(fleet: Fleet) -> None:
    hot(fleet, seconds=95)
    assert {one.subject.label("gpu") for one in fleet.reports[-1].predictions} == {"0"}
    limit = LimitSettings(metric=TEMPERATURE, labels={"gpu": "1"}, threshold=55.0)
    selected = SeriesMatcher(metric="DCGM_FI_DEV_GPU_UTIL")
    fleet.cycle.change(fleet.settings.model_copy(update={"limits": (limit,), "publish": (selected,)}))
    report = fleet.run(10)[-1]
    passed = {one.subject.label("gpu"): one.degradation for one in report.predictions if one.degradation}
    assert {gpu: one.threshold for gpu, one in passed.items()} == {"0": 90.0, "1": 55.0}
    (chosen,) = [one for one in report.predictions if one.subject == device_subject("DCGM_FI_DEV_GPU_UTIL")]
    assert chosen.degradation is None
    assert chosen.bounds


@pytest.mark.slow
def test_horizons_of_single_series_replace_those_of_the_predictor(fast_settings: PredictorSettings) -> None:
    own = LimitSettings(metric=TEMPERATURE, labels={"gpu": "0"}, horizons_seconds=(30.0,))
    fleet = Fleet(fast_settings.model_copy(update={"limits": (own,)}))
    hot(fleet)
    (found,) = [one.degradation for one in fleet.reports[-1].predictions if one.degradation]
    assert tuple(found.probability) == (30.0,)


def test_settings_that_need_a_restart_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = PredictorSettings(client_id="test")
    now = before.model_copy(update={"interval_seconds": 20.0, "horizons_seconds": (300.0,)})
    assert restart_needed(before, now, reloaded=RELOADED) == ("interval_seconds",)

    class Changed:
        settings: PredictorSettings | None = None

        def change(self, settings: PredictorSettings) -> None:
            self.settings = settings

    def refuse() -> PredictorSettings:
        raise ConfigurationError("predictor.limits is wrong")

    monkeypatch.setattr("kernelcast.predictor.reloading.logging.configure", lambda _settings: None)
    target = Changed()
    reloading.reload(target, before, refuse)  # type: ignore[arg-type]
    assert target.settings is None
    reloading.reload(target, before, lambda: now)  # type: ignore[arg-type]
    assert target.settings is now
