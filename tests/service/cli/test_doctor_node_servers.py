"""The doctor and servers of a node on loopback."""

import json
import socket
import time
from pathlib import Path

import pytest
from tests.support.dripping_server import dripping

from kernelcast.cli.app import run
from kernelcast.cli.doctor import surroundings
from kernelcast.cli.doctor.result import CheckLevel, CheckResult
from kernelcast.runtime.kafka.embedded import EmbeddedBroker


def levels(findings: list[CheckResult]) -> list[CheckLevel]:
    return [finding.level for finding in findings]


def test_a_tpu_answers_only_while_a_program_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        (there,) = surroundings.check_tpu([port], devices=tmp_path)
    (none,) = surroundings.check_tpu([port], devices=tmp_path)
    (tmp_path / "accel0").touch()
    (silent,) = surroundings.check_tpu([port], devices=tmp_path)

    assert levels([there, none, silent]) == [CheckLevel.OK, CheckLevel.OK, CheckLevel.WARN]
    assert f"port {port}" in there.found
    assert "tpu_ports" in silent.remedy


def test_a_server_that_sends_a_byte_now_and_then_does_not_hold_the_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "_WHOLE_SECONDS", 0.5)
    with dripping(b"HTTP/1.1 200 OK\r\n\r\n") as url:
        begun = time.monotonic()
        (none,) = surroundings.check_dcgm_exporter(url)
        assert time.monotonic() - begun < 3.0
    assert levels([none]) == [CheckLevel.OK]


def test_the_doctor_reads_the_exporters_section(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "kernelcast.yaml"
    config.write_text(
        f"exporter: {{state_directory: {tmp_path}, socket_path: {tmp_path}/probe.sock, interval_seconds: 1}}\n"
    )
    with EmbeddedBroker() as embedded:
        arguments = ["--kafka.bootstrap-servers", embedded.bootstrap_servers, "--config", str(config)]
        code = run(["doctor", "--json", "--no-clock", *arguments])

    findings = {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert code == 0
    assert str(tmp_path) in findings["spool"]["found"]
    assert str(tmp_path) in findings["probe socket"]["found"]
