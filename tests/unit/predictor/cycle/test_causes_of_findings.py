"""Causes of the live predictor's findings: messages of a small fleet in, findings with evidence out, in event time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.unit.predictor import conftest
from tests.unit.predictor.conftest import SECOND_NS, START_SECONDS

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.cycle.device_panels import DevicePanels, DeviceRows
from kernelcast.predictor.engine import Engine, Partition
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingState, Severity
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Versions, labels

EXPORTER = Resource((("service.instance.id", "n1"), ("service.name", "kernelcast-exporter")))
PARTITION: Partition = ("kernelcast.device", 0)
HOUR = 3600
STEP_SECONDS, CYCLE_SECONDS, LENGTH_SECONDS = 30, 150, 10_800
FAULT_SECONDS = 2 * HOUR
DEPLOYED_SECONDS = HOUR
POWER_BRAKE = 0x80
KERNELS = ("gemm#1", "norm#2", "relu#3")
HOSTS = ("brake", "shared", "settled", "xid", "memory", "lost", "deploy", "upgraded", "healthy")
GPUS = {"lost": ("0", "1"), "healthy": ("0", "1")}
SILENT_SECONDS = 30 * 60
REBOOT_SECONDS = 10 * 60
OLD, NEW = Versions(cuda="12.4", driver="550.54.15"), Versions(cuda="12.6", driver="560.28.03")
"""Of the program on the host `upgraded`, which has no tunables and reports no version of its own."""


@dataclass(frozen=True)
class Gpu:
    """State of a GPU at one second."""

    ratio: float = 1.0
    clock: float = 1980.0
    reasons: int = 0
    xid: int = 0
    double_bit_errors: int = 2
    programs: tuple[str, ...] = ("train",)
    version: str = "v1"
    slow_kernel: float = 1.0
    """Ratio of the first kernel of the first program besides that of all."""


def gpu_of(host: str, second: int) -> Gpu:
    if host == "healthy":
        # The driver keeps the number of an XID of long ago.
        return Gpu(xid=79)
    if host == "settled":
        # Slower since a deploy of both programs; later one kernel of one program becomes slow by itself.
        slow = 1.5 if second >= FAULT_SECONDS else 1.0
        new = Gpu(ratio=1.3, version="v2", slow_kernel=slow)
        return replace(new if second >= DEPLOYED_SECONDS else Gpu(), programs=("train", "serve"))
    if second < FAULT_SECONDS:
        return Gpu()
    faults = {
        "brake": Gpu(ratio=1.6, clock=990.0, reasons=POWER_BRAKE),
        "shared": Gpu(ratio=1.5, programs=("train", "serve")),
        "xid": Gpu(xid=79),
        "memory": Gpu(double_bit_errors=3),
        "deploy": Gpu(ratio=1.25, version="v2"),
        "upgraded": Gpu(ratio=1.25),
    }
    return faults.get(host, Gpu())


class Fleet:
    """One GPU for each case; its samples go as messages to an engine, and the engine's findings to the alarms."""

    def __init__(self) -> None:
        self.second = 0
        self.rng = np.random.default_rng(5)
        self.engine = Engine(PredictorSettings(client_id="test"), clock_ns=lambda: self.now_ns)
        self.totals: dict[tuple[str, str, str], DurationTotals] = {}
        self.alarms = Alarms(AlarmSettings(pages_per_day=20))
        self.candidates: list[tuple[int, Finding]] = []
        self.findings: list[Finding] = []
        self.programs: Mapping[tuple[str, str, str], str] = {}

    @property
    def now_ns(self) -> int:
        return (START_SECONDS + self.second) * SECOND_NS

    def run(self) -> None:
        while self.second < LENGTH_SECONDS:
            self.second += STEP_SECONDS
            bodies = [each.body for each in encode(EXPORTER, list(self.samples()), scope="test")]
            self.engine.take(bodies, [PARTITION] * len(bodies), {PARTITION: self.second})
            if self.second % CYCLE_SECONDS == 0:
                report = self.engine.run_cycle()
                self.candidates += [(self.second, one) for one in report.candidates]
                self.programs = report.programs
                self.findings += self.alarms.step(report.candidates, report.watched, report.time_ns)

    def samples(self) -> Iterator[Sample]:
        for host, gpu in ((name, number) for name in HOSTS for number in GPUS.get(name, ("0",))):
            if gpu == "1" and self.second > FAULT_SECONDS:
                continue
            since_fault = self.second - FAULT_SECONDS
            if host == "upgraded" and 0 <= since_fault < REBOOT_SECONDS:
                continue
            state = gpu_of(host, self.second)
            own = {"Hostname": host, "UUID": f"{host}-{gpu}", "gpu": gpu}
            if host == "healthy" and gpu == "1":
                # An instance of a divided GPU, which a person removes.
                own["GPU_I_ID"] = "3"
            levels = {
                device.SM_CLOCK: state.clock,
                device.GPU_UTIL: 95.0 + int(self.rng.integers(0, 4)),
                device.POWER_USAGE: 600 + self.rng.normal(0, 5),
                device.POWER_LIMIT: 700.0,
                device.GPU_TEMP: round(66 + self.rng.normal(0, 0.4)),
                device.SLOWDOWN_TEMP: 87.0,
                device.CLOCK_EVENT_REASONS: state.reasons,
                device.XID_ERRORS: state.xid,
                device.PCIE_LINK_WIDTH: 16,
                device.PCIE_MAX_LINK_WIDTH: 16,
            }
            for metric, value in levels.items():
                yield Sample(metric, labels(**own), self.now_ns, value)
            for counter in (device.ECC_SBE_VOLATILE, device.PCIE_REPLAY, device.CORRECTABLE_REMAPPED_ROWS):
                yield Sample(counter, labels(**own), self.now_ns, 3, START_SECONDS * SECOND_NS)
            errors = state.double_bit_errors
            yield Sample(device.ECC_DBE_VOLATILE, labels(**own), self.now_ns, errors, START_SECONDS * SECOND_NS)
            for program in state.programs:
                yield from self.durations(program, own, state)
            if host == "upgraded":
                yield from self.versions(own, restarted=since_fault == REBOOT_SECONDS)
                continue
            words = {"tunable": "block", "value": "64", "allowed": "64,128", "code_version": state.version}
            for program in state.programs:
                yield Sample(kernel.TUNABLE_INFO, labels(**own, program=f"{host}-{program}", **words), self.now_ns, 1)

    def versions(self, own: dict[str, str], *, restarted: bool) -> Iterator[Sample]:
        running = OLD if self.second < FAULT_SECONDS else NEW
        own = {**own, "program": "upgraded-train"}
        yield Sample(kernel.PROGRAM_INFO, labels(**own, **running.labels()), self.now_ns, 1)
        if restarted:
            yield Sample(kernel.PROGRAM_INFO, labels(**own, **OLD.labels()), self.now_ns, None)

    def durations(self, program: str, own: dict[str, str], state: Gpu) -> Iterator[Sample]:
        host, gpu = own["Hostname"], own["UUID"]
        rebooted = host == "upgraded" and self.second > FAULT_SECONDS
        start_ns = (START_SECONDS + rebooted * (FAULT_SECONDS + REBOOT_SECONDS - STEP_SECONDS)) * SECOND_NS
        for name in KERNELS:
            totals = self.totals.setdefault((gpu, program, f"{name} {start_ns}"), DurationTotals())
            slow = state.slow_kernel if (name, program) == (KERNELS[0], state.programs[0]) else 1.0
            totals.observe(round(1e6 * state.ratio * slow * (1 + self.rng.normal(0, 0.02))), 10)
            words = labels(**own, program=f"{host}-{program}", kernel=name, kernel_class="compute")
            yield Sample(kernel.DURATION, words, self.now_ns, totals.copy(), start_ns)

    def of(self, host: str) -> list[tuple[int, Finding]]:
        return [(second, one) for second, one in self.candidates if dict(one.labels).get("Hostname") == host]


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    found = Fleet()
    found.run()
    return found


def test_kernels_slowed_by_a_power_brake_have_that_cause_with_evidence(fleet: Fleet) -> None:
    kernels = [one for _, one in fleet.of("brake") if one.metric == kernel.DURATION.prometheus_name]
    assert {dict(one.labels)["kernel"] for one in kernels} == set(KERNELS)
    assert {one.cause for one in kernels} == {Cause.POWER_BRAKE}
    facts = {fact.metric: fact for fact in kernels[-1].evidence}
    reasons, clock = (facts[row.prometheus_name] for row in (device.CLOCK_EVENT_REASONS, device.SM_CLOCK))
    assert reasons.value == POWER_BRAKE
    assert (clock.value, clock.reference, clock.against) == (990.0, 1980.0, "baseline")
    assert {one.cause for _, one in fleet.of("brake")} == {Cause.POWER_BRAKE}


def test_the_program_of_a_gpu_is_known_unless_several_run_there(fleet: Fleet) -> None:
    assert fleet.programs["brake", "brake-0", ""] == "brake-train"
    assert ("shared", "shared-0", "") not in fleet.programs
    assert {host for host, _, _ in fleet.programs} == set(HOSTS) - {"shared", "settled"}


def test_a_braked_gpu_is_observed_without_any_limit(fleet: Fleet) -> None:
    observed = [(second, one) for second, one in fleet.of("brake") if one.state is FindingState.OBSERVED]
    assert FAULT_SECONDS < observed[0][0] <= FAULT_SECONDS + 600
    assert {one.severity for _, one in observed} == {Severity.PAGE}


def test_two_programs_on_one_gpu_contend(fleet: Fleet) -> None:
    found = [one for _, one in fleet.of("shared")]
    assert {one.cause for one in found} == {Cause.CONTENTION}
    assert all(len(one.evidence) > 1 for one in found)


def test_a_kernel_that_is_slow_alone_is_no_contention_where_all_kernels_are_slower_since_a_deploy(fleet: Fleet) -> None:
    slow = [one for second, one in fleet.of("settled") if second > FAULT_SECONDS and one.cause is not Cause.DEPLOY]
    assert {(one.cause, dict(one.labels)["kernel"]) for one in slow} == {(Cause.KERNEL_SLOWDOWN, KERNELS[0])}


def test_an_xid_79_is_an_observed_page_within_one_cycle(fleet: Fleet) -> None:
    second, first = fleet.of("xid")[0]
    assert second == FAULT_SECONDS
    assert (first.cause, first.state, first.severity) == (Cause.XID, FindingState.OBSERVED, Severity.PAGE)
    assert (first.metric, first.value) == (device.XID_ERRORS.prometheus_name, 79.0)


def test_a_double_bit_error_is_an_observed_page_after_its_block(fleet: Fleet) -> None:
    second, first = fleet.of("memory")[0]
    assert FAULT_SECONDS <= second <= FAULT_SECONDS + 300
    assert (first.cause, first.state, first.severity) == (Cause.MEMORY_ERRORS, FindingState.OBSERVED, Severity.PAGE)
    assert first.value == pytest.approx(1.0)


def test_a_gpu_that_falls_silent_while_its_neighbour_reports_has_lost_its_telemetry(fleet: Fleet) -> None:
    found = fleet.of("lost")
    assert {(one.cause, dict(one.labels)["gpu"]) for _, one in found} == {(Cause.TELEMETRY_LOST, "1")}
    assert found[0][0] <= FAULT_SECONDS + SILENT_SECONDS
    assert found[-1][0] == LENGTH_SECONDS


def test_a_slower_deploy_is_one_ticket_and_no_page(fleet: Fleet) -> None:
    candidates = [one for _, one in fleet.of("deploy")]
    assert {(one.cause, one.severity) for one in candidates} == {(Cause.DEPLOY, Severity.TICKET)}
    findings = [one for one in fleet.findings if dict(one.labels).get("program") == "deploy-train"]
    assert len({one.finding_id for one in findings}) == 1
    assert candidates[-1].evidence[0].reference == pytest.approx(1e-3, rel=0.03)


def test_a_slower_driver_is_one_ticket_that_names_it_and_no_page(fleet: Fleet) -> None:
    candidates = [one for _, one in fleet.of("upgraded")]
    assert {(one.cause, one.severity) for one in candidates} == {(Cause.DEPLOY, Severity.TICKET)}
    (ticket,) = [one for one in fleet.findings if dict(one.labels).get("program") == "upgraded-train"]
    assert (ticket.series, ticket.severity) == (len(KERNELS), Severity.TICKET)
    assert ticket.evidence[0].changes == "cuda 12.4 -> 12.6, driver 550.54.15 -> 560.28.03"
    assert ticket.evidence[0].reference == pytest.approx(1e-3, rel=0.03)


def test_a_version_that_has_ended_is_not_taken_for_the_present_one(fleet: Fleet) -> None:
    (run,) = [run for (program, _), run in fleet.engine.tunables.runs.all().items() if program == "upgraded-train"]
    assert run.versions == NEW


def test_a_healthy_gpu_has_no_finding(fleet: Fleet) -> None:
    assert fleet.of("healthy") == []
    assert {one.cause for one in fleet.findings if one.severity is Severity.PAGE} == {
        Cause.POWER_BRAKE,
        Cause.CONTENTION,
        Cause.KERNEL_SLOWDOWN,
        Cause.XID,
        Cause.MEMORY_ERRORS,
        Cause.TELEMETRY_LOST,
    }


def test_an_xid_79_pages_in_the_cycle_that_sees_it(fleet: Fleet) -> None:
    (page,) = [one for one in fleet.findings if one.cause is Cause.XID and one.state is FindingState.OBSERVED]
    assert page.severity is Severity.PAGE
    assert page.updated_ns < (START_SECONDS + FAULT_SECONDS + CYCLE_SECONDS) * SECOND_NS


def test_a_gpu_whose_series_end_while_a_cycle_runs_has_no_finding_without_labels(
    fast_settings: PredictorSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, read = conftest.Fleet(fast_settings), DevicePanels.known
    for metric in (device.XID_ERRORS, device.GPU_UTIL):
        small.device(metric.prometheus_name, lambda second: 0.0 if second < 30 else 79.0)
    small.run(30)

    def expiring(panels: DevicePanels) -> DeviceRows:
        found = read(panels)
        small.windows.drop(found.rows)
        return found

    monkeypatch.setattr(DevicePanels, "known", expiring)
    (report,) = small.run(5)
    assert report.candidates == []
