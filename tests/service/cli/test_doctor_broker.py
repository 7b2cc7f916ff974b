"""The doctor and the embedded broker."""

import json
from pathlib import Path

import pytest

from kernelcast.cli.app import run
from kernelcast.cli.doctor import broker
from kernelcast.cli.doctor.result import CheckLevel
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.settings.service import KafkaSettings


def test_the_embedded_broker_is_reachable_and_has_the_topics_and_no_clock_of_its_own() -> None:
    with EmbeddedBroker() as embedded:
        settings = KafkaSettings(bootstrap_servers=embedded.bootstrap_servers)
        found = {finding.check: finding.level for finding in broker.check_broker(settings, probe_clock=True)}

    assert found == {"kafka": CheckLevel.OK, "topics": CheckLevel.OK}


def test_json_is_printed_and_a_failure_exits_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "probe.sock").touch()
    with EmbeddedBroker() as embedded:
        arguments = ["--json", "--no-clock", "--kafka.bootstrap-servers", embedded.bootstrap_servers]
        code = run(["doctor", *arguments, "--probe.socket", str(tmp_path / "probe.sock")])

    findings = {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert code == 1
    assert findings["kafka"]["level"] == "ok"
    assert findings["probe socket"]["level"] == "fail"
    assert findings["probe socket"]["remedy"]
