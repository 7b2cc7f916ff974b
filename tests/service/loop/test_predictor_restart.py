"""`kill -9` of the predictor: it restores its windows and does not repeat its hints."""

import time
from functools import partial
from pathlib import Path

import pytest
from tests.service.conftest import Broker
from tests.service.servers import wait_for
from tests.service.stack import Stack
from tests.support.predictor.node import SECOND_NS, Node, read_all
from tests.support.service.programs import topics

from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.topics import HINTS

pytestmark = pytest.mark.service


def saved_after(stack: Stack, time_seconds: float) -> bool:
    """Whether a partition was saved after a time, Unix seconds."""
    return stack.own("predictor", "kernelcast_predictor_snapshot_timestamp_seconds") > time_seconds


def test_a_killed_predictor_comes_back_with_its_windows_and_repeats_no_hint(kafka: Broker, tmp_path: Path) -> None:
    topics(kafka)
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    node = Node(settings)
    node.start_ns = time.time_ns() - 100 * SECOND_NS
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        predictor = stack.service("predictor")
        node.seconds(range(80))
        wait_for("a prediction", lambda: stack.own("predictor", "kernelcast_predictor_raised_series") > 0)
        wait_for("a hint", lambda: stack.own("predictor", "kernelcast_predictor_hints_total") == 1)
        wait_for("a snapshot of it", partial(saved_after, stack, time.time()))
        # Partitions are saved one after the other, within a moment: after a second begins the next round.
        wait_for("the next snapshot", partial(saved_after, stack, time.time() + 1))
        predictor.kill()
        node.seconds(range(80, 85))
        stack.start(predictor)
        assert stack.own("predictor", "kernelcast_predictor_restored_series_total") > 4
        wait_for("the prediction", lambda: stack.own("predictor", "kernelcast_predictor_raised_series") > 0)
        node.seconds(range(85, 90))
        wait_for(
            "a proposal kept back",
            lambda: stack.own("predictor", "kernelcast_predictor_hints_withheld_total", reason="open") > 0,
        )
        points = stack.own("predictor", "kernelcast_predictor_points_total", topic="kernelcast.device")
        assert points <= 10 * 4 * 2, "points in the snapshot are not read again"
        assert len(read_all(settings, HINTS.name)) == 1
