"""The whole predictor on the embedded broker: OTLP in, forecasts, a hint and snapshots out; event time runs fast."""

from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest
from tests.support.predictor.node import SECOND_NS, Node, read_all
from tests.support.service.predictors import RunningPredictor
from tests.support.waiting import eventually

from kernelcast.columnar import Decoder, Sample
from kernelcast.predictor.explain_command import PATH
from kernelcast.predictor.settings import CalendarSettings, PredictorSettings
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.events import HintMode, finding_from, hint_from
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import labels
from kernelcast.wire.topics import DEADLETTER, DEVICE, FINDINGS, FORECASTS, HINTS, KERNELS

HOSTS = QUIET, LOUD = "m1", "m2"
HOT, COLD = 100, 380
PASSED = {"cause": "thermal", "urgency": "page", "state": "passed"}
SINCE = "kernelcast_predictor_finding_since_timestamp_seconds"


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaSettings]:
    Decoder.warm_up()
    # The embedded broker waits for a session's timeout before it lets the next member in.
    quick = {"heartbeat.interval.ms": "200", "session.timeout.ms": "3000"}
    with EmbeddedBroker() as embedded:
        yield KafkaSettings(bootstrap_servers=embedded.bootstrap_servers, properties=quick)


def settings(kafka: KafkaSettings) -> PredictorSettings:
    return PredictorSettings(
        kafka=kafka,
        web=WebSettings(listen_address="127.0.0.1:0"),
        client_id="predictor-test",
        interval_seconds=1.0,
        window_points=120,
        horizons_seconds=(60.0, 300.0),
        sweep_every_seconds=0.25,
        snapshot_every_seconds=1.0,
    )


def forecasts(kafka: KafkaSettings) -> dict[str, list[tuple[dict[str, str], float]]]:
    decoder = Decoder()
    numbers = decoder.decode([value for _, value in read_all(kafka, FORECASTS.name)]).numbers
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for series, value in zip(numbers.series.tolist(), numbers.value.tolist(), strict=True):
        identity = decoder.identity(series)
        found.setdefault(identity.name, []).append((dict(identity.attributes), value))
    return found


def test_a_drift_and_a_bad_tunable_become_forecasts_and_one_hint_and_a_restart_remembers(broker: KafkaSettings) -> None:
    node = Node(broker)
    with RunningPredictor(settings(broker)) as running:
        eventually(running.ready)
        node.seconds(range(80))
        node.producer.send(DEVICE.name, key=b"n1", value=b"\xff\xff\xff not OTLP")
        node.seconds(range(80, 90))
        eventually(lambda: running.value("kernelcast_predictor_raised_series") > 0)
        eventually(lambda: running.value("kernelcast_predictor_hints_total", rule="block_size_not_warp_multiple") == 1)
        eventually(lambda: running.value("kernelcast_predictor_snapshot_timestamp_seconds") > 0)
        assert running.value("kernelcast_predictor_messages_total", topic="kernelcast.device", outcome="unusable") == 1
    found = forecasts(broker)
    thermal = [words for words, value in found["kernelcast.degradation.probability"] if value > 0.8]
    assert {(one["metric"], one["cause"], one["source"]) for one in thermal} == {
        ("DCGM_FI_DEV_GPU_TEMP", "thermal", "simulated")
    }
    assert {"mean", "lower", "upper"} == {words["bound"] for words, _ in found["kernelcast.forecast.value"]}
    hints = [hint_from(decode_event(value)) for _, value in read_all(broker, HINTS.name)]
    assert [(one.value, one.requires, one.mode, one.tunable) for one in hints] == [
        ("128", "33", HintMode.CANARY, "block")
    ]
    assert hints[0].expected_ratio == pytest.approx(1 - 0.5 * (1 - 1 / 32))
    assert all(evidence.source for evidence in hints[0].evidence)
    assert len(read_all(broker, DEADLETTER.name)) == 1
    with RunningPredictor(settings(broker)) as running:
        eventually(running.ready)
        assert running.value("kernelcast_predictor_restored_series_total") > 4
        eventually(lambda: running.value("kernelcast_predictor_raised_series") > 0)
        node.seconds(range(90, 95))
        eventually(lambda: running.value("kernelcast_predictor_points_total", topic="kernelcast.kernels") > 0)
        eventually(lambda: running.value("kernelcast_predictor_hints_withheld_total", reason="open") > 0)
    assert len(read_all(broker, HINTS.name)) == 1


class Pair:
    """Two hosts with one GPU each, too hot from the hundredth second on, and kernels that are fast for a while."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self.node = Node(kafka)
        self.totals = {host: DurationTotals() for host in HOSTS}

    def seconds(self, numbers: range) -> None:
        for number in numbers:
            now_ns = self.node.start_ns + number * SECOND_NS
            for host in HOSTS:
                own = {"Hostname": host, "UUID": f"GPU-{host}", "gpu": "0"}
                gauges = {device.GPU_TEMP: 95.0 if number >= HOT else 60.0 + number % 2, device.SLOWDOWN_TEMP: 87.0}
                levels = [Sample(metric, labels(**own), now_ns, value) for metric, value in gauges.items()]
                self.node.send(DEVICE.name, host.encode(), levels)
                self.totals[host].observe(500_000 if HOT <= number < COLD else 1_000_000, 100)
                words = labels(**own, program=f"{host}-train", kernel="gemm", kernel_class="compute")
                duration = Sample(kernel.DURATION, words, now_ns, self.totals[host].copy(), self.node.start_ns)
                self.node.send(KERNELS.name, host.encode(), [duration])
        assert self.node.producer.flush(10) == 0


def baselines(running: RunningPredictor) -> dict[str, float | None]:
    found = httpx.get(
        f"{running.predictor.web.url}{PATH}", params={"series": "cuda_kernel_duration_seconds"}, timeout=5
    )
    return {one["labels"]["Hostname"]: one.get("baseline") for one in found.json()["series"]}


def after_two_cycles(running: RunningPredictor, durations: int) -> None:
    """Wait until all durations have been read and evaluated: windows hold two minutes only."""
    eventually(lambda: running.value("kernelcast_predictor_points_total", topic=KERNELS.name) >= durations)
    cycles = running.value("kernelcast_predictor_sweeps_total")
    eventually(lambda: running.value("kernelcast_predictor_sweeps_total") >= cycles + 2)


def since(running: RunningPredictor) -> dict[tuple[tuple[str, str], ...], float]:
    """When the limit of each temperature's finding was passed, by its labels."""
    samples = [one for family in running.predictor.registry.collect() for one in family.samples if one.name == SINCE]
    return {tuple(one.labels.items()): one.value for one in samples if one.labels.items() >= PASSED.items()}


def findings_of(kafka: KafkaSettings) -> dict[str, set[str]]:
    """Ids of the findings about temperatures, by host."""
    found: dict[str, set[str]] = {host: set() for host in HOSTS}
    for key, value in read_all(kafka, FINDINGS.name):
        finding = finding_from(decode_event(value))
        if finding.metric == device.GPU_TEMP.prometheus_name:
            found.setdefault(dict(finding.labels)["Hostname"], set()).add(key.decode())
    return found


def test_a_maintenance_is_neither_alarmed_nor_learnt_and_a_restart_begins_no_finding_again() -> None:
    with EmbeddedBroker() as embedded:
        kafka = KafkaSettings(bootstrap_servers=embedded.bootstrap_servers)
        pair = Pair(kafka)
        begin, end = (datetime.fromtimestamp(pair.node.start_ns / SECOND_NS + each, UTC) for each in (HOT, 10 * HOT))
        maintenance = CalendarSettings(begin=begin, end=end, labels={"Hostname": QUIET})
        changed = settings(kafka).model_copy(update={"calendar": (maintenance,)})
        with RunningPredictor(changed) as running:
            eventually(running.ready)
            for first in range(0, 400, 40):
                pair.seconds(range(first, first + 40))
                after_two_cycles(running, len(HOSTS) * (first + 40))
            eventually(lambda: (baselines(running).get(LOUD) or 1.0) < 0.9e-3)
            assert baselines(running)[QUIET] == pytest.approx(1e-3, rel=0.02)
            eventually(lambda: bool(findings_of(kafka)[LOUD]))
            began = since(running)
        before = findings_of(kafka)
        with RunningPredictor(changed) as running:
            eventually(running.ready)
            pair.seconds(range(400, 420))
            eventually(lambda: since(running) != {})
            assert since(running) == began, "the same labels and times"
        assert findings_of(kafka) == before
        assert (len(before[LOUD]), before[QUIET]) == (1, set())
