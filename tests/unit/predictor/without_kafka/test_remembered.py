"""Findings, their begin, hysteresis and waiting time over a restart without Kafka."""

import pytest
from tests.support.predictor.prometheus_double import PrometheusDouble
from tests.unit.predictor.without_kafka.test_source import GPU, START, TEMPERATURE, Site, every_15_s

from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.bars import bars
from kernelcast.predictor.without_kafka.alertmanager import AlertSender
from kernelcast.predictor.without_kafka.outputs import PrometheusOutputs
from kernelcast.predictor.without_kafka.remembered import Remembered, selector
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import PrometheusError
from kernelcast.wire.events import to_event
from kernelcast.wire.findings import FindingState, Mark, Verdict

HOT = {**GPU, "UUID": "GPU-1", "gpu": "1"}


class Running(Site):
    """A predictor without Kafka whose GPU 1 has passed its limit."""

    def __init__(self, prometheus: PrometheusDouble | None = None, **more: object) -> None:
        super().__init__(**more)
        if prometheus is not None:
            self.prometheus = prometheus
        else:
            self.prometheus.add(TEMPERATURE, GPU, every_15_s(-3000, 9000))
            self.prometheus.add(TEMPERATURE, HOT, every_15_s(-3000, 9000, 95.0))
        self.outputs = PrometheusOutputs(
            self.settings, self.engine, self.source.admission, self.registry, clock_ns=lambda: round(self.now * 1e9)
        )
        self.remembered = Remembered(
            self.prometheus,
            self.engine,
            self.source.admission,
            self.outputs.findings.alarms,
            clock_seconds=lambda: self.now,
        )

    @property
    def alarms(self) -> Alarms:
        return self.outputs.findings.alarms

    def cycle_at(self, seconds: float) -> None:
        self.poll_at(seconds)
        report = self.engine.run_cycle()
        for step in self.outputs.steps:
            step(report)
        self._scrape()

    def _scrape(self) -> None:
        """Let Prometheus scrape the predictor."""
        for family in self.registry.collect():
            for sample in family.samples:
                self.prometheus.add(sample.name, {**sample.labels, "instance": "p:19402"}, [(self.now, sample.value)])


def test_a_restart_keeps_id_and_begin_of_a_finding_and_sends_no_second_page() -> None:
    first = Running()
    for minute in range(10):
        first.cycle_at(60.0 * minute + 6)
    (before,) = first.alarms.lasting
    assert before.state is FindingState.PASSED
    second = Running(first.prometheus)
    second.poll_at(900)
    assert second.remembered.restore()
    second.cycle_at(930)
    (after,) = second.alarms.lasting
    assert (after.finding_id, after.began_ns) == (before.finding_id, before.began_ns)
    assert second.value("pages_total") == 0
    assert first.value("pages_total") == 1


def test_an_alert_below_its_limit_goes_on_after_a_restart_until_its_hysteresis_ends_it() -> None:
    first = Running()
    for minute in range(10):
        first.cycle_at(60.0 * minute + 6)
    key = next(key for key in first.prometheus.samples if dict(key).get("UUID") == "GPU-1")
    kept = [(at, value) for at, value in first.prometheus.samples[key] if at < START + 600]
    first.prometheus.samples[key] = [*kept, *every_15_s(600, 3000, 60.0)]
    second = Running(first.prometheus)
    second.poll_at(660)
    assert second.remembered.restore()
    rows = [row for subject, row in second.engine.windows.items() if subject.label("UUID") == "GPU-1"]
    state = second.engine.cycle.detection.state
    fires = [row for row in rows if row < len(state.firing) and state.firing[row]]
    assert len(fires) == 1
    assert state.since_ns[fires[0]] == next(iter(first.alarms.candidates.by_series.values())).since_ns


def test_two_replicas_show_the_same_finding() -> None:
    first = Running()
    first.cycle_at(6)
    second = Running(first.prometheus)
    second.poll_at(21)
    assert second.remembered.restore()
    first.cycle_at(36)
    second.cycle_at(36)
    assert [one.finding_id for one in first.alarms.lasting] == [one.finding_id for one in second.alarms.lasting]


def test_findings_begin_again_after_hours_away_and_those_of_other_gpus_are_left_out() -> None:
    first = Running()
    first.cycle_at(6)
    late = Running(first.prometheus)
    late.poll_at(8000)
    late.prometheus.samples = {
        key: samples for key, samples in late.prometheus.samples.items() if dict(key)["__name__"] == TEMPERATURE
    }
    assert late.remembered.restore()
    assert not late.alarms.candidates.by_series
    elsewhere = Running(first.prometheus)
    first.cycle_at(8021)
    elsewhere.prometheus.samples = {
        key: samples for key, samples in first.prometheus.samples.items() if dict(key).get("UUID") != "GPU-1"
    }
    elsewhere.poll_at(8036)
    assert elsewhere.remembered.restore()
    assert not elsewhere.alarms.candidates.by_series


def test_a_prometheus_that_does_not_answer_is_asked_again() -> None:
    site = Running()
    site.prometheus.error = PrometheusError("no network")
    assert not site.remembered.restore()


def test_a_series_is_written_as_it_is_parsed() -> None:
    from kernelcast.predictor.explain import parse

    labels = (("a", 'say "x"\\ \n'), ("b", ""))
    assert parse(selector("M", labels)) == ("M", dict(labels))


def test_predictions_are_served_under_the_names_of_the_catalogue_and_withdrawn() -> None:
    site = Running()
    site.cycle_at(6)
    labels = {"metric": TEMPERATURE, "Hostname": "n1", "UUID": "GPU-1", "gpu": "1"}
    passed = {**labels, "cause": "thermal", "state": "passed"}
    assert site.registry.get_sample_value("kernelcast_degradation_alert", passed) == 1
    assert site.registry.get_sample_value("kernelcast_degradation_threshold", labels) == 89
    key = next(key for key in site.prometheus.samples if dict(key).get("UUID") == "GPU-1")
    kept = [(at, value) for at, value in site.prometheus.samples[key] if at < START + 30]
    site.prometheus.samples[key] = [*kept, *every_15_s(30, 9000, 40.0)]
    for minute in range(1, 70):
        site.cycle_at(60.0 * minute + 6)
    assert site.registry.get_sample_value("kernelcast_degradation_alert", passed) is None


def test_findings_that_are_posted_do_not_fire_rules_besides_and_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    posted: list[int] = []
    monkeypatch.setattr(AlertSender, "post", lambda _self, findings, _users, _now: posted.append(len(findings)))
    site = Running(alertmanager_url="http://alertmanager:9093")
    site.cycle_at(6)
    samples = [sample for family in site.registry.collect() for sample in family.samples]
    names = {sample.name for sample in samples}
    assert posted == [1]
    assert "kernelcast_degradation_threshold" in names
    assert "kernelcast_predictor_finding_opened_timestamp_seconds" in names
    assert "kernelcast_degradation_alert" not in names
    since = [one for one in samples if one.name == "kernelcast_predictor_finding_since_timestamp_seconds"]
    assert [one.labels["urgency"] for one in since] == ["posted"]  # rules select page and ticket
    # Rules hold an alert "as last known" while this is absent.
    assert site.value("findings_timestamp_seconds") == pytest.approx(site.now, abs=60)


def test_findings_are_listed_with_the_values_that_are_scraped() -> None:
    site = Running()
    site.cycle_at(6)
    (listed,) = site.outputs.findings.known()[0].values()
    assert listed.value == 95.0
    key = next(key for key in site.prometheus.samples if dict(key).get("UUID") == "GPU-1")
    kept = [(at, value) for at, value in site.prometheus.samples[key] if at < START + 60]
    site.prometheus.samples[key] = [*kept, *every_15_s(60, 3000, 97.0)]
    for minute in range(1, 12):
        site.cycle_at(60.0 * minute + 6)
    (listed,) = site.outputs.findings.known()[0].values()
    (scraped,) = [
        sample.value
        for family in site.registry.collect()
        for sample in family.samples
        if sample.name == "kernelcast_predictor_finding_value"
    ]
    assert listed.value == scraped == 97.0


def test_a_mark_raises_the_bar_of_its_series_also_after_a_restart() -> None:
    first = Running()
    first.cycle_at(6)
    (finding,) = first.alarms.lasting
    mark = Mark(finding.finding_id, Verdict.FALSE_ALARM, by="ann", time_ns=round(first.now * 1e9))
    first.outputs.findings.add(encode_event(to_event(mark, source="/test", time_ns=mark.time_ns)))
    first.cycle_at(36)
    now_ns = round(first.now * 1e9)
    before = bars(first.alarms.known, now_ns)
    assert before[finding.evidence[0].metric, finding.evidence[0].labels] == 1.5
    second = Running(first.prometheus)
    second.poll_at(51)
    assert second.remembered.restore()
    assert bars(second.alarms.known, now_ns) == before
    second.cycle_at(66)
    assert second.value("finding_marks", verdict="false-alarm") == 1
