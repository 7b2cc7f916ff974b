"""Faults of GPUs: the predictor on Kafka and the one on Prometheus find the same, within ten minutes.

Both engines get the same samples, one as OTLP messages, one through the source from a Prometheus in memory.
"""

from collections.abc import Callable

from tests.unit.predictor.without_kafka.test_source import START, Site

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.engine import Engine
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.model import Metric

FAULT, END, STEP = 7200, 12_600, 15
HOT, BRAKED, FALLEN, DOUBLE_BIT, NARROW, LEAKING, SILENT = range(1, 8)
LATEST_SECONDS = 600.0
RESOURCE = Resource((("host.name", "n1"), ("service.instance.id", "n1"), ("service.name", "test")))

Found = dict[tuple[str, str], float]
"""By UUID and cause, when a finding began."""


def value(metric: Metric, gpu: int, at: int) -> float:
    """A sample of the fleet; each GPU but the first has a fault from `FAULT` on."""
    after = at >= FAULT
    values: dict[Metric, float] = {
        device.GPU_TEMP: 95.0 if after and gpu == HOT else 60.0 + at // 60 % 3,
        device.SLOWDOWN_TEMP: 89.0,
        device.POWER_USAGE: 400.0 + at // 30 % 5,
        device.SM_CLOCK: 900.0 if after and gpu == BRAKED else 1980.0,
        device.GPU_UTIL: 90.0,
        device.CLOCK_EVENT_REASONS: 128.0 if after and gpu == BRAKED else 0.0,
        device.XID_ERRORS: 79.0 if after and gpu == FALLEN else 0.0,
        device.ECC_DBE_VOLATILE: 2.0 if after and gpu == DOUBLE_BIT else 0.0,
        device.PCIE_LINK_WIDTH: 8.0 if after and gpu == NARROW else 16.0,
        device.PCIE_MAX_LINK_WIDTH: 16.0,
        device.FB_FREE: 70_000.0 - (12.0 * max(at - FAULT, 0) if gpu == LEAKING else 0.0),
        device.FB_USED: 10_000.0 + (12.0 * max(at - FAULT, 0) if gpu == LEAKING else 0.0),
    }
    return values[metric]


METRICS = (
    device.GPU_TEMP,
    device.SLOWDOWN_TEMP,
    device.POWER_USAGE,
    device.SM_CLOCK,
    device.GPU_UTIL,
    device.CLOCK_EVENT_REASONS,
    device.XID_ERRORS,
    device.ECC_DBE_VOLATILE,
    device.PCIE_LINK_WIDTH,
    device.PCIE_MAX_LINK_WIDTH,
    device.FB_FREE,
    device.FB_USED,
)


def labels(gpu: int) -> dict[str, str]:
    return {"Hostname": "n1", "UUID": f"GPU-{gpu}", "gpu": str(gpu), "modelName": "NVIDIA H100 80GB HBM3"}


def present(at: int) -> list[int]:
    return [gpu for gpu in range(8) if not (gpu == SILENT and at >= FAULT)]


def found_by(run_cycle: Callable[[int], CycleReport]) -> Found:
    """Run a cycle every minute; when each candidate of a GPU became a part of a finding."""
    alarms, found = Alarms(AlarmSettings()), Found()
    for at in range(60, END, 60):
        report = run_cycle(at)
        alarms.step(report.candidates, report.watched, report.time_ns, programs=report.programs)
        for one in alarms.candidates.by_series.values():
            if one.is_accepted:
                found.setdefault((dict(one.latest.labels)["UUID"], str(one.latest.cause)), float(at))
    return found


def on_kafka() -> Found:
    site = Site()
    engine = Engine(site.settings, clock_ns=lambda: round(site.now * 1e9))
    sent = 0

    def run_cycle(at: int) -> CycleReport:
        nonlocal sent
        site.now = START + at + 1
        while sent <= at:
            time_ns = round((START + sent) * 1e9)
            made = [
                Sample(metric, tuple(sorted(labels(gpu).items())), time_ns, value(metric, gpu, sent), 1)
                for gpu in present(sent)
                for metric in METRICS
            ]
            bodies = [export.body for export in encode(RESOURCE, made, scope="test")]
            engine.take(bodies, [("kernelcast.device", 0)] * len(bodies), {("kernelcast.device", 0): sent})
            sent += STEP
        return engine.run_cycle()

    return found_by(run_cycle)


def on_prometheus() -> Found:
    site = Site()
    sent = 0

    def run_cycle(at: int) -> CycleReport:
        nonlocal sent
        while sent <= at:
            for gpu in present(sent):
                for metric in METRICS:
                    sample = (START + sent, value(metric, gpu, sent))
                    site.prometheus.add(metric.prometheus_name, labels(gpu), [sample])
            sent += STEP
        for series, samples in site.prometheus.samples.items():
            site.prometheus.samples[series] = samples[-30:]
        site.poll_at(at + 6)
        return site.engine.run_cycle()

    return found_by(run_cycle)


def test_both_find_the_same_faults_within_ten_minutes() -> None:
    kafka, prometheus = on_kafka(), on_prometheus()
    assert {uuid for uuid, _ in kafka} == {f"GPU-{gpu}" for gpu in range(1, 8)}
    assert prometheus.keys() == kafka.keys()
    apart = {what: prometheus[what] - began for what, began in kafka.items()}
    assert max(map(abs, apart.values())) <= LATEST_SECONDS, apart
