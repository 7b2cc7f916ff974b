"""Series from Prometheus in the windows: jobs, gaps, late samples, outages, counters and limits."""

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from tests.support.predictor.prometheus_double import PrometheusDouble

from kernelcast.predictor.engine import Engine
from kernelcast.predictor.series.subjects import Form
from kernelcast.predictor.series.windows import WindowArray
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.without_kafka.measures import PrometheusMeasures
from kernelcast.predictor.without_kafka.source import Source
from kernelcast.wire.errors import PrometheusError

START = 1_800_000_000.0
TEMPERATURE, SLOWDOWN = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_SLOWDOWN_TEMP"
REPLAYS = "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
GPU = {"Hostname": "n1", "UUID": "GPU-0", "gpu": "0", "modelName": "NVIDIA H100 80GB HBM3", "job": "dcgm"}


class Site:
    """A source on a grid of 15 s beside a Prometheus in memory."""

    def __init__(self, **more: object) -> None:
        given = {"without_kafka": True, "url": "http://prometheus:9090", **more}
        self.settings = PredictorSettings.model_validate(
            {"interval_seconds": 15.0, "max_series": 100, "prometheus": given, "publish": [{"metric": ".*_REPLAY_.*"}]}
        )
        self.now = START
        self.engine = Engine(self.settings, clock_ns=lambda: round(self.now * 1e9))
        self.prometheus, self.registry = PrometheusDouble(), CollectorRegistry()
        self.source = Source(
            self.settings,
            self.engine,
            lambda _points: self.prometheus,
            measures=PrometheusMeasures(self.registry),
            clock_seconds=lambda: self.now,
        )

    def poll_at(self, seconds: float) -> bool:
        self.now = START + seconds
        return self.source.poll()

    def window(self, metric: str) -> WindowArray:
        (row,) = [row for subject, row in self.engine.windows.items() if subject.metric == metric]
        window: WindowArray = self.engine.windows.matrix(np.array([row]))[0]
        return window

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"kernelcast_predictor_{name}", labels)


def every_15_s(begin: float, end: float, value: float = 60.0) -> list[tuple[float, float]]:
    return [(START + at, value) for at in np.arange(begin, end, 15.0).tolist()]


def test_each_poll_asks_for_the_intervals_that_are_new_and_for_those_that_may_come_late() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, GPU, every_15_s(-600, 600))
    site.poll_at(6)
    site.prometheus.queries.clear()
    assert site.source.due_seconds == pytest.approx(14.0)
    site.poll_at(21)
    _, time_range = site.prometheus.queries[0]
    assert time_range is not None
    assert (time_range.start_seconds, time_range.end_seconds) == (START - 30, START + 15)
    site.prometheus.queries.clear()
    site.poll_at(22)
    assert not site.prometheus.queries


def test_another_job_on_a_gpu_begins_no_series_and_loses_no_value() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, {**GPU, "pod": "job-1", "namespace": "a"}, every_15_s(-300, 31, 60.0))
    site.prometheus.add(TEMPERATURE, {**GPU, "pod": "job-2", "namespace": "a"}, every_15_s(30, 300, 70.0))
    site.poll_at(6)
    site.poll_at(66)
    window = site.window(TEMPERATURE)
    assert window[-4:].tolist() == [60.0, 70.0, 70.0, 70.0]
    assert np.isfinite(window[-20:]).all()
    assert len([subject for subject, _ in site.engine.windows.items() if subject.metric == TEMPERATURE]) == 1
    assert site.source.admission.attributes["GPU-0", ""] == {"pod": "job-2", "namespace": "a"}
    assert site.value("prometheus_missed_intervals_total", reason="no_sample") == 0


def test_a_restarted_exporter_under_another_host_name_goes_on_with_its_series() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, {**GPU, "Hostname": "dcgm-exporter-abc"}, every_15_s(-300, 16))
    site.poll_at(6)
    site.prometheus.add(TEMPERATURE, {**GPU, "Hostname": "dcgm-exporter-xyz"}, every_15_s(30, 100))
    site.poll_at(51)
    (subject,) = [subject for subject, _ in site.engine.windows.items() if subject.metric == TEMPERATURE]
    assert subject.label("Hostname") == "dcgm-exporter-xyz"
    assert np.isfinite(site.window(TEMPERATURE)[-10:]).sum() >= 9
    site.engine.run_cycle()


def test_an_interval_without_a_sample_stays_empty_and_is_counted() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, GPU, [*every_15_s(-300, 16), *every_15_s(75, 100)])
    site.poll_at(6)
    site.poll_at(96)
    assert np.isfinite(site.window(TEMPERATURE)[-6:]).tolist() == [True, False, False, False, True, True]
    assert site.value("prometheus_missed_intervals_total", reason="no_sample") == 3


def test_a_sample_that_comes_late_fills_its_interval() -> None:
    site = Site()
    other = {**GPU, "UUID": "GPU-1"}
    site.prometheus.add(TEMPERATURE, GPU, [*every_15_s(-300, 1), *every_15_s(30, 100)])
    site.prometheus.add(TEMPERATURE, other, every_15_s(-300, 100))
    site.poll_at(36)
    late = next(key for key in site.prometheus.samples if dict(key)["UUID"] == "GPU-0")
    site.prometheus.samples[late] = sorted([*site.prometheus.samples[late], (START + 15, 66.0)])
    site.poll_at(51)
    rows = [row for subject, row in site.engine.windows.items() if subject.metric == TEMPERATURE]
    assert 66.0 in site.engine.windows.matrix(np.array(rows))[:, -4:]


def test_what_a_prometheus_without_an_answer_had_meanwhile_is_read_afterwards() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, GPU, every_15_s(-300, 1200))
    site.poll_at(6)
    site.prometheus.error = PrometheusError("no network")
    with pytest.raises(PrometheusError):
        site.poll_at(300)
    site.prometheus.error = None
    assert not site.poll_at(606)
    assert np.isfinite(site.window(TEMPERATURE)[-40:]).all()
    assert site.value("prometheus_missed_intervals_total", reason="outage") == 0


def test_an_outage_that_is_longer_than_a_window_is_counted_and_reported() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, GPU, [*every_15_s(-300, 30), *every_15_s(7000, 7500)])
    site.poll_at(6)
    series = len(site.engine.windows)
    assert site.poll_at(7206)
    # 480 intervals have passed; a window has 240 of them.
    assert site.value("prometheus_missed_intervals_total", reason="outage") == 240 * series


def test_a_counter_becomes_a_rate_that_goes_on_over_jobs_and_has_no_value_where_it_falls() -> None:
    site = Site()
    first = [(START + 15.0 * at, 3.0 * max(at, 0)) for at in range(-20, 3)]
    site.prometheus.add(REPLAYS, {**GPU, "pod": "job-1"}, first)
    site.prometheus.add(REPLAYS, {**GPU, "pod": "job-2"}, [(START + 45, 39.0), (START + 60, 0.0), (START + 75, 15.0)])
    site.poll_at(6)
    site.poll_at(96)
    rates = site.window(REPLAYS)[-5:]
    np.testing.assert_allclose(rates, [0.2, 0.2, 2.2, np.nan, 1.0], atol=1e-6)


def test_a_gpu_without_a_slowdown_temperature_has_that_of_its_model() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, GPU, every_15_s(-300, 100))
    site.poll_at(6)
    assert site.window(SLOWDOWN)[-1] == 89.0
    site = Site(slowdown_temperatures={GPU["modelName"]: 85.0})
    site.prometheus.add(TEMPERATURE, GPU, every_15_s(-300, 100))
    site.poll_at(6)
    assert site.window(SLOWDOWN)[-1] == 85.0


def test_the_explanation_of_a_temperature_says_whether_its_limit_is_that_of_the_model_or_of_the_gpu() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, GPU, every_15_s(-300, 100))
    site.prometheus.add(SLOWDOWN, GPU, every_15_s(30, 100, 92.0))
    for seconds, origin in ((6, "kernelcast's table of models: NVIDIA H100 80GB HBM3"), (66, SLOWDOWN)):
        site.poll_at(seconds)
        site.engine.run_cycle()
        (explained,) = site.engine.explain(TEMPERATURE)
        assert explained["limit_from"] == origin


def test_an_exporter_that_writes_its_slowdown_temperature_keeps_it() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, GPU, every_15_s(-300, 100))
    site.prometheus.add(SLOWDOWN, GPU, every_15_s(-300, 100, 92.0))
    site.poll_at(6)
    assert set(site.window(SLOWDOWN)[-10:].tolist()) == {92.0}


def test_a_gpu_of_an_unknown_model_says_so_once_and_in_a_metric() -> None:
    site = Site()
    for uuid in ("GPU-0", "GPU-1"):
        site.prometheus.add(TEMPERATURE, {**GPU, "UUID": uuid, "modelName": "NVIDIA X1"}, every_15_s(-300, 100))
    with capture_logs() as lines:
        site.poll_at(6)
        site.poll_at(21)
    assert [line["model"] for line in lines if "slowdown" in line["event"]] == ["NVIDIA X1"]
    assert site.value("gpus_without_limit", modelName="NVIDIA X1") == 2
    assert SLOWDOWN not in {subject.metric for subject, _ in site.engine.windows.items()}


def test_series_beyond_the_limit_are_refused_and_counted() -> None:
    site = Site()
    for number in range(120):
        site.prometheus.add(TEMPERATURE, {**GPU, "UUID": f"GPU-{number}"}, every_15_s(-60, 100))
    site.poll_at(6)
    assert len(site.engine.windows) == 100
    assert site.engine.windows.refused >= 20


def test_a_series_that_names_no_gpu_is_foreign_and_counted_once() -> None:
    site = Site()
    site.prometheus.add(TEMPERATURE, {"job": "other"}, every_15_s(-300, 100))
    site.poll_at(6)
    site.poll_at(21)
    assert len(site.engine.windows) == 0
    assert site.value("prometheus_foreign_series") == 1


def test_matchers_and_a_former_name_of_a_field_are_part_of_the_query() -> None:
    site = Site(matchers='cluster="a"')
    site.prometheus.add("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", GPU, every_15_s(-300, 100, 4.0))
    site.poll_at(6)
    query, _ = site.prometheus.queries[0]
    assert query.endswith(',cluster="a"}[15000ms])')
    (subject,) = [subject for subject, _ in site.engine.windows.items()]
    assert (subject.metric, subject.form) == ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", Form.LEVEL)


def test_the_host_of_todays_dcgm_exporter_is_our_label() -> None:
    site = Site()
    newer = {name: value for name, value in GPU.items() if name != "Hostname"} | {"hostname": "node7"}
    site.prometheus.add(TEMPERATURE, newer, every_15_s(-300, 100))
    site.poll_at(6)
    assert {subject.label("Hostname") for subject, _ in site.engine.windows.items()} == {"node7"}


def test_a_series_under_dcgms_canonical_name_and_the_recorded_one_under_ours_are_one() -> None:
    site = Site()
    site.prometheus.add("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", GPU, every_15_s(-300, 100, 4.0))
    site.prometheus.add("DCGM_FI_DEV_GPU_TEMP_CELSIUS", GPU, every_15_s(-300, 100, 61.0))
    site.prometheus.add("DCGM_FI_DEV_GPU_TEMP", GPU, every_15_s(-300, 100, 61.0))
    site.poll_at(6)
    found = sorted(subject.metric for subject, _ in site.engine.windows.items())
    assert found == ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_SLOWDOWN_TEMP"]
    assert site.window("DCGM_FI_DEV_GPU_TEMP")[-1] == 61.0
