"""The past of series from Prometheus: two days first, weeks with rests, jobs joined, and alerts that began in it."""

from collections.abc import Sequence

import numpy as np
import pytest
from tests.support.predictor.prometheus_double import PrometheusDouble
from tests.unit.predictor.without_kafka.test_source import GPU, START, TEMPERATURE, Site, every_15_s

from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.series.histories import KEPT_BLOCKS
from kernelcast.predictor.without_kafka.measures import PARTS
from kernelcast.predictor.without_kafka.past_reader import PastReader
from kernelcast.wire.errors import PrometheusError
from kernelcast.wire.findings import FindingState

DAY = 86_400


def every_5_min(begin: float, end: float, *values: float) -> Sequence[tuple[float, float]]:
    return [(START + at, values[int(at // 300) % len(values)]) for at in np.arange(begin, end, 300.0).tolist()]


class Restarted(Site):
    """A source whose first poll is over, and the reader of its past."""

    def __init__(self, **samples: Sequence[tuple[float, float]]) -> None:
        super().__init__()
        self.rests: list[float] = []
        for pod, found in samples.items():
            self.prometheus.add(TEMPERATURE, {**GPU, "pod": pod}, found)
        self.prometheus.add(TEMPERATURE, {**GPU, "UUID": "GPU-9", "pod": "x"}, every_5_min(-DAY, -DAY / 2, 50.0))
        self.poll_at(6)
        self.past = PastReader(
            self.engine,
            self.source.admission,
            self._paged,
            matchers="",
            measures=self.source._measures,
            between=self.rests.append,
        )

    def _paged(self, points: int) -> PrometheusDouble:
        self.prometheus.points = points
        return self.prometheus

    def blocks(self) -> Floats:
        (row,) = [row for subject, row in self.engine.windows.items() if subject.metric == TEMPERATURE]
        mean, _ = self.engine.cycle.histories.blocks(np.array([row]), int(START // 300) - 1)
        return mean.ravel()


def test_two_days_are_there_before_the_weeks_and_gpus_that_are_gone_stay_away() -> None:
    site = Restarted(job=[*every_5_min(-3 * DAY, 0, 60.0), *every_15_s(-300, 300)])
    before = site.past.days_done
    site.past.run(site.now)
    assert (before, site.past.days_done) == (False, True)
    assert np.isfinite(site.blocks()).sum() >= KEPT_BLOCKS - 4
    assert {dict(subject.labels)["UUID"] for subject, _ in site.engine.windows.items()} == {"GPU-0"}
    assert [site.value("prometheus_refilled_ratio", part=part) for part in PARTS] == [1.0, 1.0]


def test_jobs_of_the_past_join_in_one_series() -> None:
    first, second = every_5_min(-2 * DAY, -DAY, 60.0), every_5_min(-DAY, 0, 70.0)
    site = Restarted(a=first, b=[*second, *every_15_s(-300, 300, 70.0)])
    site.past.run(site.now)
    known = site.blocks()[np.isfinite(site.blocks())]
    assert (known == 60.0).sum() > 250
    assert (known == 70.0).sum() > 250


def test_weeks_are_read_in_parts_with_rests_and_once() -> None:
    site = Restarted(job=[*every_5_min(-15 * DAY, 0, 60.0), *every_15_s(-300, 300)])
    site.prometheus.queries.clear()
    site.past.run(site.now)
    hours = [page for query, page in site.prometheus.queries if "[3600s]" in query and page is not None]
    temperatures = [
        page for query, page in site.prometheus.queries if query.endswith(f"({TEMPERATURE}[3600s])") and page
    ]
    assert len(temperatures) == 5
    assert max(page.points for page in hours) <= 168
    assert len(site.rests) >= len(hours)
    asked = len(site.prometheus.queries)
    site.past.run(site.now)
    assert len(site.prometheus.queries) == asked


def test_a_reading_that_is_throttled_goes_on_where_it_was() -> None:
    site = Restarted(job=[*every_5_min(-2 * DAY, 0, 60.0), *every_15_s(-300, 300)])
    site.prometheus.error = PrometheusError("too many", status=429, retry_after_seconds=30.0)
    with pytest.raises(PrometheusError):
        site.past.run(site.now)
    assert not site.past.days_done
    site.prometheus.error = None
    site.past.run(site.now)
    assert np.isfinite(site.blocks()).sum() >= KEPT_BLOCKS - 4


def test_a_limit_that_was_passed_hours_ago_has_its_begin_there() -> None:
    hot = [*every_5_min(-2 * DAY, -7200, 60.0, 61.0), *every_5_min(-7200, 0, 95.0), *every_15_s(-300, 300, 95.0)]
    site = Restarted(job=hot)
    site.past.run(site.now)
    (found,) = site.engine.run_cycle().candidates
    assert found.state is FindingState.PASSED
    assert START - 7200 <= found.began_ns / 1e9 <= START - 6000


def test_a_prediction_that_has_held_for_hours_does_not_wait_again() -> None:
    rise = [
        (START + at, 60.0 + max(at + 5 * 3600, 0.0) / 3600.0 * 4.5) for at in np.arange(-2 * DAY, 0, 300.0).tolist()
    ]
    live = [(START + at, 60.0 + 4.5 * (5 + at / 3600.0)) for at in np.arange(-300.0, 300.0, 15.0).tolist()]
    site = Restarted(job=[*rise[:-1], *live])
    site.past.run(site.now)
    report = site.engine.run_cycle()
    (found,) = report.candidates
    assert found.state is FindingState.PREDICTED
    assert found.began_ns / 1e9 < START - 3600
    alarms = Alarms(AlarmSettings())
    alarms.step(report.candidates, report.watched, report.time_ns, programs=report.programs)
    assert [one.state for one in alarms.lasting] == [FindingState.PREDICTED]
