"""`kernelcast topics` and the embedded broker."""

import pytest

from kernelcast.cli.app import run
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.wire.topics import TOPICS


def test_list_fails_until_apply_has_made_the_topics(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker(topics=["other"]) as broker:
        servers = ("--kafka.bootstrap-servers", broker.bootstrap_servers)
        before = run(["topics", "list", *servers]), capsys.readouterr()
        applied = run(["topics", "apply", *servers]), capsys.readouterr()
        after = run(["topics", "list", *servers]), capsys.readouterr()

    assert (before[0], applied[0], after[0]) == (1, 0, 0)
    assert f"{len(TOPICS)} of {len(TOPICS)} topics are missing: kernelcast.device, " in before[1].err
    assert "cannot be administrated" in applied[1].err
    rows = dict(line.split("\t")[:2] for line in after[1].out.splitlines())
    assert rows["kernelcast.kernels"] == rows["other"] == "4"
