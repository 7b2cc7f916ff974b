"""A badly tuned kernel leads to a hint; the program applies it, measures it, and keeps it."""

import sys
from pathlib import Path

import pytest
from tests.service.conftest import Broker
from tests.service.servers import wait_for
from tests.service.stack import Stack
from tests.support.service.programs import topics

pytestmark = pytest.mark.service


def test_a_hint_reaches_the_program_whose_kernel_time_then_falls(kafka: Broker, tmp_path: Path) -> None:
    topics(kafka)
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        for name in ("bridge", "exporter", "predictor"):
            stack.service(name)
        stack.background("example", sys.executable, "-m", "kernelcast.probe.example", "--program", "tuned")
        wait_for("the tunable's bad value", lambda: stack.exposed("kernelcast_tunable_info", value="48"))
        wait_for("a hint", lambda: stack.total("kernelcast_hint_issued_total", program="tuned") >= 1)
        wait_for(
            "an outcome that keeps it", lambda: stack.total("kernelcast_hint_outcomes_total", state="kept") == 1, 90
        )
        (value,) = {dict(labels)["value"] for labels in stack.exposed("kernelcast_tunable_info", program="tuned")}
        assert int(value) % 32 == 0
        ratio = stack.total("kernelcast_hint_measured_ratio", program="tuned")
        assert 0 < ratio < 0.9
        assert stack.total("kernelcast_hint_outcomes_total", state="rolled_back") == 0
