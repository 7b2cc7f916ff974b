"""`kernelcast topics` against the broker inside the process."""

import pytest

from kernelcast.cli.app import run
from kernelcast.runtime.kafka.admin import TopicChange, TopicResult, TopicState
from kernelcast.wire.topics import DEVICE, TOPICS


def test_without_a_sub_command_there_is_help() -> None:
    assert run(["topics"]) == 2


def test_a_wrong_settings_file_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topics", "list", "--config", "/nowhere.yaml"]) == 2
    assert "/nowhere.yaml cannot be read" in capsys.readouterr().err


def listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], **changes: str) -> tuple[int, str, str]:
    """`topics list` on a broker whose topics are right, but for some settings of kernelcast.device."""
    found = {topic.name: TopicState(topic.name, topic.partitions, 1, topic.config) for topic in TOPICS}
    config = {**DEVICE.config, **{name.replace("_", "."): value for name, value in changes.items()}}
    found[DEVICE.name] = TopicState(DEVICE.name, DEVICE.partitions, 1, config)
    monkeypatch.setattr("kernelcast.cli.topics.list_topics", lambda _settings: found)
    code = run(["topics", "list"])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_list_names_settings_that_differ_and_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = listed(monkeypatch, capsys, retention_ms="60000", cleanup_policy="compact")
    (row,) = [line for line in out.splitlines() if line.startswith("kernelcast.device\t")]

    assert code == 1
    assert row.split("\t")[-1] == (
        f"cleanup.policy=compact (should be delete), retention.ms=60000 (should be {DEVICE.config['retention.ms']})"
    )
    assert f"1 of {len(TOPICS)} topics have settings that differ from the contract: kernelcast.device;" in err


def test_list_of_topics_as_they_should_be_exits_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = listed(monkeypatch, capsys)
    assert (code, err) == (0, "")


def test_apply_gives_one_reason_once_for_all_topics(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "3 replicas on 1 broker"
    changes = [TopicChange(topic.name, TopicResult.FAILED, remark=reason) for topic in TOPICS]
    monkeypatch.setattr("kernelcast.cli.topics.apply_topics", lambda *_arguments, **_named: changes)

    assert run(["topics", "apply", "--replication-factor", "3"]) == 1
    said = capsys.readouterr()
    assert said.err == f"all topics: {reason}\n"
    assert reason not in said.out
