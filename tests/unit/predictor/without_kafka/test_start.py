"""The look at a Prometheus before the start: what is wrong with it, what it has, and the grid that follows."""

import numpy as np
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from kernelcast.predictor.prometheus import RangeSeries
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.without_kafka.start import PresentSeries, on_grid, wait_for_series
from kernelcast.wire.errors import PrometheusError

NOW = 1_800_000_000.0
LABELS = (("UUID", "GPU-0"), ("__name__", "DCGM_FI_DEV_GPU_TEMP"), ("pod", 'a"b'))


class Answers:
    """Gives one answer after the other to the first query of each look: an error, or a number of series."""

    def __init__(self, *answers: PrometheusError | int, scrape_seconds: float = 30.0) -> None:
        self.answers, self.scrape_seconds = list(answers), scrape_seconds
        self.queries: list[str] = []

    def query(self, query: str, *, at_seconds: float) -> list[RangeSeries]:
        self.queries.append(query)
        at = np.array([at_seconds])
        if query.startswith("count"):
            answer = self.answers.pop(0)
            if isinstance(answer, PrometheusError):
                raise answer
            return (
                [RangeSeries((("__name__", "DCGM_FI_DEV_GPU_TEMP"),), at, np.array([float(answer)]))] if answer else []
            )
        if query.startswith("topk"):
            return [RangeSeries(LABELS, at, at)]
        times = at_seconds - self.scrape_seconds * np.arange(6)[::-1] + np.array([0, 0.004, 0, -0.003, 0, 0.001])
        return [RangeSeries(LABELS, times, times)]


def settings(**more: object) -> PredictorSettings:
    given = {"without_kafka": True, "url": "http://p:9090", **more}
    return PredictorSettings.model_validate({"prometheus": given})


def found(answers: Answers, *, ends_after: int = 9, **more: object) -> tuple[PresentSeries | None, list[float]]:
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) > ends_after

    return wait_for_series(answers, settings(**more), wait=wait, clock_seconds=lambda: NOW), waits


def test_the_series_and_the_time_between_two_samples_are_found() -> None:
    looked, waits = found(Answers(16))
    assert looked is not None
    assert looked.series == {"DCGM_FI_DEV_GPU_TEMP": 16}
    assert looked.scrape_seconds == pytest.approx(30.0, abs=0.01)
    assert not waits


def test_a_prometheus_that_starts_or_throttles_is_awaited_for_as_long_as_it_says() -> None:
    starting = PrometheusError("starting", status=503)
    throttled = PrometheusError("too many", status=429, retry_after_seconds=40.0)
    looked, waits = found(Answers(starting, throttled, 1))
    assert looked is not None
    assert waits == [10.0, 40.0]


def test_a_prometheus_that_is_away_is_awaited_as_one_that_starts() -> None:
    looked, waits = found(Answers(PrometheusError("refused", is_away=True), 1))
    assert looked is not None
    assert waits == [10.0]


@pytest.mark.parametrize("error", [PrometheusError("no", status=401), PrometheusError("is no Prometheus")])
def test_a_prometheus_that_refuses_or_is_none_ends_the_start(error: PrometheusError) -> None:
    with pytest.raises(PrometheusError):
        found(Answers(error))


def test_a_prometheus_without_series_is_reported_with_what_was_looked_for_and_what_to_do() -> None:
    with capture_logs() as lines:
        looked, waits = found(Answers(0, 0, 5), matchers='cluster="a"')
    assert looked is not None
    assert len(waits) == 2
    reason = lines[0]["reason"]
    assert 'DCGM_FI_DEV_GPU_TEMP with {cluster="a"}' in reason
    assert "let it scrape dcgm-exporter" in reason


def test_a_stop_ends_the_wait() -> None:
    looked, _ = found(Answers(0, 0, 0), ends_after=1)
    assert looked is None


@pytest.mark.parametrize(
    ("scrape", "grid"), [(14.998, 15.0), (15.004, 15.0), (1.0, 10.0), (30.0, 30.0), (45.0, 50.0), (600.0, 300.0)]
)
def test_the_grid_is_as_wide_as_the_time_between_two_scrapes(scrape: float, grid: float) -> None:
    assert on_grid(settings(), scrape).interval_seconds == grid


def test_an_interval_of_the_settings_stays() -> None:
    given = PredictorSettings.model_validate(
        {"interval_seconds": 20.0, "prometheus": {"without_kafka": True, "url": "http://p:9090"}}
    )
    assert on_grid(given, 60.0).interval_seconds == 20.0


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"without_kafka": True}, "--prometheus"),
        ({"url": "http://p", "alertmanager_url": "http://a"}, "remove it"),
        ({"url": "http://p", "bearer_token_file": "/t", "user": "ann"}, "exclude each other"),
        ({"url": "http://p", "password_file": "/t"}, "needs user"),
        ({"url": "http://p", "key_file": "/t"}, "needs cert_file"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, object], remedy: str) -> None:
    with pytest.raises(ValidationError, match=remedy):
        PredictorSettings.model_validate({"prometheus": given})
