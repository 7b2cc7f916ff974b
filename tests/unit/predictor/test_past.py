"""The past of series from Prometheus, against a double of its client."""

import threading
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from kernelcast.predictor.prometheus import RangeSeries, TimeRange
from kernelcast.predictor.series.histories import KEPT_BLOCKS, Histories
from kernelcast.predictor.series.saved.rows import SavedRows
from kernelcast.predictor.series.saved.writer import StateWriter
from kernelcast.predictor.series.subjects import DURATION, VARIANT, Form, Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.state.past import Past, fill_or_warn
from kernelcast.wire.errors import PrometheusError

SECOND_NS = 1_000_000_000
NOW = 1_800_000_000
MEAN_QUERY = (
    "(rate(X_sum[300s]) / rate(X_count[300s])) or (histogram_sum(rate(X[300s])) / histogram_count(rate(X[300s])))"
)
TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"


class Prometheus:
    """Answers each query with the moment in hours since `NOW`, in pages of 100 moments."""

    def __init__(self, *labels: dict[str, str], unreachable: bool = False) -> None:
        self._labels = labels
        self.unreachable = unreachable
        self.queries: list[str] = []

    def pages(self, query: str, time: TimeRange) -> Iterator[Sequence[RangeSeries]]:
        if self.unreachable:
            raise PrometheusError("no network")
        self.queries.append(query)
        for page in time.pages(100):
            seconds = page.start_seconds + page.step_seconds * np.arange(page.points, dtype=np.float64)
            yield [RangeSeries(tuple(sorted(one.items())), seconds, (seconds - NOW) / 3600.0) for one in self._labels]


class Start:
    """A predictor that has read a value of each series from Kafka."""

    def __init__(self, prometheus: Prometheus, *subjects: Subject) -> None:
        self.windows = Windows(interval_ns=15 * SECOND_NS, points=240, max_series=100)
        lock = threading.RLock()
        self.histories = Histories(self.windows, lock)
        self.saved = SavedRows(self.windows, lock, histories=self.histories)
        self.rows = np.array([self.windows.admit(one, owner=0) for one in subjects])
        times = np.full(len(self.rows), NOW * SECOND_NS)
        self.windows.put_levels(self.rows, times, np.full(len(self.rows), 99.0), now_seconds=0.0)
        self.past = Past(lambda _: prometheus, self.windows, self.histories, lock, filled=self.saved.rewrite)


def temperature(gpu: str) -> Subject:
    return Subject(TEMPERATURE, Form.LEVEL, (("Hostname", "n1"), ("gpu", gpu)))


def scraped(gpu: str) -> dict[str, str]:
    return {"__name__": TEMPERATURE, "Hostname": "n1", "gpu": gpu, "job": "kernelcast", "instance": "bridge:9400"}


def test_three_resolutions_are_filled_and_what_kafka_gave_stays() -> None:
    start = Start(Prometheus(scraped("0"), scraped("7")), temperature("0"), temperature("1"))
    assert start.past.fill(float(NOW)) == 1
    newest = start.histories.newest_block(start.rows[:1])
    mean, _ = start.histories.blocks(start.rows, newest)
    ends = (newest + np.arange(2 - KEPT_BLOCKS, 2)) * 300.0
    known = np.isfinite(mean[0])
    assert known.sum() >= KEPT_BLOCKS - 2
    np.testing.assert_allclose(mean[0][known], (ends[known] - NOW) / 3600.0, atol=1e-3)
    assert np.isnan(mean[1]).all()
    hours = start.histories.hours(start.rows, newest)[0]
    assert np.isfinite(hours).sum() > 800
    np.testing.assert_allclose(np.diff(hours[np.isfinite(hours)]), 1.0, atol=1e-3)
    window = start.windows.matrix(start.rows[:1])[0]
    assert window[-1] == 99.0
    assert np.isfinite(window[:-3]).sum() > 230


def test_series_go_on_from_their_past() -> None:
    start = Start(Prometheus(scraped("0")), temperature("0"))
    start.past.fill(float(NOW))
    for minute in range(1, 20):
        times = np.array([(NOW + 60 * minute) * SECOND_NS])
        start.windows.put_levels(start.rows, times, np.array([50.0]), now_seconds=0.0)
        start.histories.advance(start.rows)
    mean, _ = start.histories.blocks(start.rows)
    assert np.isfinite(mean[0, -20:]).all()
    assert mean[0, -1] == 50.0


def test_a_series_is_asked_for_once_and_an_unreachable_prometheus_again() -> None:
    prometheus = Prometheus(scraped("0"), unreachable=True)
    start = Start(prometheus, temperature("0"), temperature("5"))
    assert fill_or_warn(start.past, float(NOW)) == 0
    prometheus.unreachable = False
    assert fill_or_warn(start.past, float(NOW)) == 1
    asked = len(prometheus.queries)
    assert fill_or_warn(start.past, float(NOW)) == 0
    assert len(prometheus.queries) == asked == 3


def test_series_with_a_past_are_not_asked_for() -> None:
    start = Start(Prometheus(scraped("0")), temperature("0"))
    start.past.fill(float(NOW))
    again = Prometheus(scraped("0"))
    past = Past(lambda _: again, start.windows, start.histories, threading.RLock(), filled=lambda _: None)
    assert past.fill(float(NOW)) == 0
    assert not again.queries


def test_a_filled_series_is_saved_whole_with_the_next_snapshot() -> None:
    start = Start(Prometheus(scraped("0")), temperature("0"))
    writer = StateWriter(start.saved, epoch=1, sequence=0, every_seconds=60.0)
    assert "page|0" in dict(writer.save(start.rows, 1))
    assert "page|0" not in dict(writer.save(start.rows, 2))
    start.past.fill(float(NOW))
    assert "page|0" in dict(writer.save(start.rows, 3))


@pytest.mark.parametrize(
    ("subject", "query"),
    [
        (Subject(TEMPERATURE, Form.LEVEL, ()), f"avg_over_time({TEMPERATURE}[300s])"),
        (Subject("DCGM_FI_DEV_SM_CLOCK", Form.LEVEL, ()), "quantile_over_time(0.5, DCGM_FI_DEV_SM_CLOCK[300s])"),
        (Subject("x_total", Form.RATE, ()), "rate(x_total[300s])"),
        (
            Subject("cuda_sync_calls_total", Form.RATE, ()),
            "rate(cuda_sync_calls_total[300s]) / on (P) group_left () ((max by (P) ("
            "rate(kernelcast_probe_waits_measured_seconds_total[300s]) / "
            "(rate(kernelcast_probe_running_seconds_total[300s]) > 0)) "
            "or group by (P) (cuda_sync_calls_total)) > 0)".replace(
                "P", "Hostname, UUID, gpu, GPU_I_ID, program, rank, source"
            ),
        ),
        (
            Subject(VARIANT, Form.MEAN, ()),
            f"rate({VARIANT}[300s]) / rate(kernelcast_kernel_variant_launches_total[300s])",
        ),
        (
            Subject(DURATION, Form.MEAN, ()),
            MEAN_QUERY.replace("X", DURATION),
        ),
    ],
)
def test_the_query_gives_what_the_predictor_computes_from_points(subject: Subject, query: str) -> None:
    prometheus = Prometheus()
    start = Start(prometheus, subject)
    start.past.fill(float(NOW))
    assert prometheus.queries[0] == query


def test_series_of_which_a_scrape_changed_a_label_have_the_past_of_both() -> None:
    moved = NOW - 24 * 3600

    class Moved(Prometheus):
        """The exporter's pod was replaced a day ago: since then another instance."""

        def pages(self, query: str, time: TimeRange) -> Iterator[Sequence[RangeSeries]]:
            for page in super().pages(query, time):
                former, present = page
                before = former.seconds < moved
                yield [
                    RangeSeries(former.labels, former.seconds[before], former.values[before]),
                    RangeSeries(present.labels, present.seconds[~before], present.values[~before]),
                ]

    start = Start(Moved({**scraped("0"), "instance": "a"}, {**scraped("0"), "instance": "b"}), temperature("0"))
    start.past.fill(float(NOW))
    mean, _ = start.histories.blocks(start.rows)
    assert np.isfinite(mean[0]).sum() >= KEPT_BLOCKS - 2


def test_a_series_that_ends_during_the_queries_gives_its_past_to_no_other() -> None:
    class Ending(Prometheus):
        def pages(self, query: str, time: TimeRange) -> Iterator[Sequence[RangeSeries]]:
            if not self.queries:
                start.windows.drop(start.rows)
                assert start.windows.admit(temperature("5"), owner=0) == start.rows[0]
            return super().pages(query, time)

    prometheus = Ending(scraped("0"), scraped("5"))
    start = Start(prometheus, temperature("0"))
    assert start.past.fill(float(NOW)) == 0
    assert start.histories.known_blocks(start.rows).tolist() == [0]
    assert start.past.fill(float(NOW)) == 1, "the other one is asked for by itself"


def test_a_refused_query_does_not_keep_the_other_metrics_without_a_past() -> None:
    class Refusing(Prometheus):
        def pages(self, query: str, time: TimeRange) -> Iterator[Sequence[RangeSeries]]:
            if "POWER" in query:
                raise PrometheusError("query processing would load too many samples", status=422)
            return super().pages(query, time)

    power = Subject("DCGM_FI_DEV_POWER_USAGE", Form.LEVEL, temperature("0").labels)
    start = Start(Refusing(scraped("0")), power, temperature("0"))
    with pytest.raises(PrometheusError, match="too many samples"):
        start.past.fill(float(NOW))
    assert start.histories.known_blocks(start.rows)[1] >= KEPT_BLOCKS - 2
