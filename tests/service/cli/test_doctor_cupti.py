"""The doctor beside NVIDIA's libcupti, which ends a process without a driver that asks the version of 13.2."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.service.packages import CUPTI, folder_with

from kernelcast.cli.doctor import gpu
from kernelcast.runtime.kafka.embedded import EmbeddedBroker

ROOT = Path(__file__).parents[3]


def test_the_doctor_calls_what_the_probe_has() -> None:
    found = list(gpu.check_cupti(parameters=Path("/nowhere")))

    assert [one.check for one in found] == ["cupti decoder", "cupti"]
    assert found[1].found.startswith(("no libcupti was found", "version "))


def test_a_libcupti_that_crashes_is_a_finding_and_the_checks_go_on(tmp_path: Path) -> None:
    """`kernelcast doctor` ended with SIGSEGV, without a word."""
    config = tmp_path / "kernelcast.yaml"
    config.write_text(f"exporter: {{state_directory: {tmp_path}, socket_path: {tmp_path}/probe.sock}}\n")
    path = os.pathsep.join(map(str, (ROOT / "core", ROOT / "exporter", folder_with(CUPTI))))
    command = [sys.executable, "-m", "kernelcast.cli", "doctor", "--no-clock", "--config", str(config)]
    with EmbeddedBroker() as embedded:
        command += ["--kafka.bootstrap-servers", embedded.bootstrap_servers]
        environ = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)

    (cupti,) = [line for line in done.stdout.splitlines() if "cupti: " in line]
    assert "libcupti.so.13 is there; whether it works shows only where there is a driver" in cupti
    assert "promtool: " in done.stdout
    assert done.returncode == 0, done.stdout
