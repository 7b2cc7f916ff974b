"""A slower deploy is one ticket until a person accepts it, until it is undone, or until its program has ended."""

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from tests.support.predictor.finding_log import Message, Sent, log
from tests.unit.predictor.conftest import SECOND_NS, START_SECONDS, kernel_subject

from kernelcast.predictor.engine import Engine
from kernelcast.predictor.series.saved.reader import StateReader
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import EndReason, Finding, FindingState, Mark, Severity, Verdict
from kernelcast.wire.identity import Versions

PARTITION = ("kernelcast.kernels", 0)
SUBJECTS = [kernel_subject(name) for name in ("gemm#1", "norm#2")]
HOUR = 3600
DAY = 24 * HOUR
INTERVAL_SECONDS = 150
CYCLE_SECONDS, RARE_CYCLE_SECONDS = 300, 1800
"""A block, and six: a cycle evaluates all blocks since the last one."""
SETTINGS = PredictorSettings(
    client_id="test", interval_seconds=float(INTERVAL_SECONDS), expire_seconds=2 * HOUR, sweep_every_seconds=300.0
)


class Site:
    """One program with two kernels, two values a block, and the predictor that reads it; the first kernel changes."""

    def __init__(self) -> None:
        self.second = 0
        self.sent = Sent()
        self.rng = np.random.default_rng(11)
        self.reports = 0
        self._start()

    def _start(self) -> None:
        self.engine = Engine(SETTINGS, clock_ns=lambda: self.now_ns)
        self.log = log(self.sent, CollectorRegistry())

    @property
    def now_ns(self) -> int:
        return (START_SECONDS + self.second) * SECOND_NS

    def run(
        self,
        seconds: int,
        *,
        slow: float = 1.0,
        version: str | Versions = "v1",
        silent: bool = False,
        every: int = CYCLE_SECONDS,
    ) -> None:
        for _ in range(0, seconds, every):
            for _ in range(0, every, INTERVAL_SECONDS):
                self.second += INTERVAL_SECONDS
                if not silent:
                    self._report(slow, version)
            report = self.engine.run_cycle(self.log.accepted)
            self.engine.expire()
            over = report.deploys_over
            self.log.cycle(report.candidates, watched=report.watched, time_ns=self.now_ns, deploys_over=over)

    def _report(self, slow: float, version: str | Versions) -> None:
        windows = self.engine.windows
        rows = np.array([windows.admit(subject, owner=0) for subject in SUBJECTS], np.int64)
        values = 1e-3 * np.array([slow, 1.0]) * (1 + self.rng.normal(0, 0.01, 2))
        times = np.full(2, self.now_ns, np.int64)
        windows.put_levels(rows, times, values, now_seconds=self.now_ns / SECOND_NS)
        place = {"program": "train", "Hostname": "n1", "UUID": "GPU-0"}
        if isinstance(version, Versions):
            self.engine.tunables.observe_versions(
                tuple(sorted((place | version.labels()).items())), time_ns=self.now_ns, now_ns=self.now_ns
            )
            return
        words = {"tunable": "block", "value": "64", "code_version": version}
        self.engine.tunables.observe(
            tuple(sorted((words | place).items())), time_ns=self.now_ns, owner=0, now_ns=self.now_ns
        )

    def restart(self) -> None:
        """End the predictor, and start another one with its saved state."""
        saved, findings = StateReader(), self.log.save()
        self.engine.offsets[PARTITION] = 1
        for key, value in self.engine.save(PARTITION):
            saved.put(key, value)
        self._start()
        self.engine.restore_saved(PARTITION, saved)
        self.log.restore(findings)

    @property
    def findings(self) -> list[Finding]:
        """Written findings about deploys, without the daily repetitions."""
        found: list[Finding] = []
        for one in self.sent.findings():
            if one.cause is Cause.DEPLOY and (not found or found[-1].state is not one.state):
                found.append(one)
        return found

    @property
    def lasting(self) -> list[Finding]:
        return [one for one in self.log.alarms.lasting if one.cause is Cause.DEPLOY]


@pytest.fixture
def deployed() -> Site:
    site = Site()
    site.run(4 * HOUR, every=RARE_CYCLE_SECONDS)
    site.run(2 * HOUR, slow=1.25, version="v2")
    return site


@pytest.mark.slow
def test_the_ticket_of_a_slower_deploy_lasts_for_days_and_over_later_deploys(deployed: Site) -> None:
    deployed.run(DAY, slow=1.25, version="v2", every=RARE_CYCLE_SECONDS)
    deployed.run(4 * HOUR, slow=1.25, version="v3")
    (begun,) = deployed.findings
    assert (begun.severity, begun.state, begun.series) == (Severity.TICKET, FindingState.OBSERVED, 1)
    (now,) = deployed.lasting
    assert now.finding_id == begun.finding_id
    assert now.value == pytest.approx(1.25e-3, rel=0.03)
    assert now.limit == pytest.approx(1e-3, rel=0.03)
    assert {one.severity for one in deployed.sent.findings()} == {Severity.TICKET}
    fact = now.evidence[0]
    assert (fact.against, fact.code_version, dict(fact.labels)["kernel"]) == ("before", "v2", "gemm#1")


@pytest.mark.slow
def test_it_is_over_when_a_person_accepts_it_and_the_next_deploy_is_compared_with_that(deployed: Site) -> None:
    (begun,) = deployed.lasting
    deployed.log._take(Message(begun))
    deployed.log._take(Message(Mark(begun.finding_id, Verdict.ACCEPTED, "ana", "", deployed.now_ns)))
    deployed.run(CYCLE_SECONDS, slow=1.25, version="v2")
    assert [(one.state, one.end_reason) for one in deployed.findings[1:]] == [(FindingState.OVER, EndReason.ACCEPTED)]
    deployed.run(4 * HOUR, slow=1.25, version="v3")
    assert len(deployed.findings) == 2
    deployed.run(2 * HOUR, slow=1.5, version="v4")
    (again,) = deployed.lasting
    assert again.finding_id != begun.finding_id
    assert again.limit == pytest.approx(1.25e-3, rel=0.03)


@pytest.mark.parametrize(("slow", "version"), [(1.0, "v2"), (1.25, "v1")], ids=["duration", "version"])
def test_it_is_over_when_the_duration_or_the_version_is_the_former_one(
    deployed: Site, slow: float, version: str
) -> None:
    deployed.run(2 * HOUR, slow=slow, version=version)
    assert [(one.state, one.end_reason) for one in deployed.findings[1:]] == [(FindingState.OVER, EndReason.UNDONE)]
    assert deployed.lasting == []


@pytest.mark.slow
def test_it_survives_a_restart_of_the_predictor(deployed: Site) -> None:
    (begun,) = deployed.lasting
    deployed.restart()
    deployed.run(4 * HOUR, slow=1.25, version="v2")
    assert [one.finding_id for one in deployed.findings] == [begun.finding_id]
    deployed.restart()
    deployed.run(2 * HOUR, slow=1.25, version="v1")
    assert [one.end_reason for one in deployed.findings[1:]] == [EndReason.UNDONE]


@pytest.mark.slow
def test_it_lasts_while_the_program_pauses_and_is_over_when_it_has_ended(deployed: Site) -> None:
    deployed.run(HOUR, silent=True)
    assert len(deployed.lasting) == 1
    deployed.run(2 * HOUR, silent=True)
    assert [one.end_reason for one in deployed.findings[1:]] == [EndReason.PROGRAM_ENDED]


@pytest.mark.slow
def test_a_deploy_that_changes_nothing_is_no_finding() -> None:
    site = Site()
    site.run(4 * HOUR, every=RARE_CYCLE_SECONDS)
    site.run(2 * HOUR, version="v2")
    site.run(28 * HOUR, version="v2", every=RARE_CYCLE_SECONDS)
    assert site.findings == []


OLD = Versions(image="app:1", cuda="12.4", driver="550.54.15")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"driver": "560.28.03"}, "driver 550.54.15 -> 560.28.03"),
        ({"image": "app:2"}, "image app:1 -> app:2"),
        (
            {"driver": "560.28.03", "cuda": "12.6", "image": "app:2"},
            "image app:1 -> app:2, cuda 12.4 -> 12.6, driver 550.54.15 -> 560.28.03",
        ),
    ],
    ids=["driver", "image", "all"],
)
def test_the_ticket_names_the_driver_cuda_and_image_of_a_program_without_tunables(
    changed: dict[str, str], text: str
) -> None:
    site, new = Site(), replace(OLD, **changed)
    site.run(4 * HOUR, version=OLD, every=RARE_CYCLE_SECONDS)
    site.run(20 * 60, silent=True)
    site.run(2 * HOUR, slow=1.25, version=new)
    site.restart()
    site.run(HOUR, slow=1.25, version=new)
    (begun,) = site.findings
    assert (begun.severity, begun.evidence[0].changes) == (Severity.TICKET, text)
    assert {one.severity for one in site.sent.findings()} == {Severity.TICKET}
    (now,) = site.lasting
    assert now.evidence[0].changes == text
    site.run(HOUR, slow=1.25, version=OLD)
    assert [one.end_reason for one in site.findings[1:]] == [EndReason.UNDONE]


@pytest.mark.slow
def test_deploys_that_follow_too_soon_to_be_compared_are_one() -> None:
    site = Site()
    site.run(4 * HOUR, version=OLD, every=RARE_CYCLE_SECONDS)
    site.run(10 * 60, slow=1.25, version=replace(OLD, driver="560.28.03"))
    site.run(2 * HOUR, slow=1.25, version=replace(OLD, driver="560.28.03", image="app:2"))
    (begun,) = site.findings
    assert begun.evidence[0].changes == "image app:1 -> app:2, driver 550.54.15 -> 560.28.03"
    assert begun.limit == pytest.approx(1e-3, rel=0.03)
