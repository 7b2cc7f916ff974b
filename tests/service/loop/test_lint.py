"""Prometheus' own tools accept kernelcast's pages and generated files."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.service.conftest import Broker
from tests.service.require import binary
from tests.service.servers import get, wait_for
from tests.service.stack import KERNELCAST, Stack
from tests.support.service.programs import LAUNCHES, SCRIPT, topics

pytestmark = pytest.mark.service


def lint(exposition: str) -> list[str]:
    """promtool's complaints, without those about metric and label names that are dcgm-exporter's, not ours."""
    done = subprocess.run(
        [binary("promtool", "prometheus"), "check", "metrics"],
        input=exposition, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = (done.stdout + done.stderr).splitlines()
    return [line for line in lines if not line.startswith("DCGM_FI_") and "label names should be" not in line]


def test_promtool_accepts_what_every_service_exposes(kafka: Broker, tmp_path: Path) -> None:
    topics(kafka)
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        for name in ("bridge", "exporter", "predictor"):
            stack.service(name)
        stack.background("program", sys.executable, SCRIPT, "train", "void work<float>(int)", "500", "1")
        arguments = ("--kafka.bootstrap-servers", kafka.bootstrap_servers, "--duration", "20", "--speed", "max")
        stack.background("simulate", *KERNELCAST, "simulate", *arguments)
        wait_for("kernels of the program", lambda: stack.total(LAUNCHES, program="train") == 500)
        wait_for("simulated GPUs", lambda: stack.exposed("DCGM_FI_DEV_GPU_TEMP"))
        for name, address in stack.addresses.items():
            assert lint(get(f"http://{address}/metrics")) == [], name
