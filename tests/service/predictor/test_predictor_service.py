"""The whole predictor on the embedded broker: OTLP in, forecasts, a hint and snapshots out; event time runs fast."""

from collections.abc import Iterator

import pytest
from tests.support.predictor.node import Node, read_all
from tests.support.service.predictors import RunningPredictor
from tests.support.waiting import eventually

from kernelcast.columnar import Decoder
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.events import HintMode, hint_from
from kernelcast.wire.topics import DEADLETTER, DEVICE, FORECASTS, HINTS


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
        min_points=24,
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
