"""The demo refuses wrong options before it starts anything, not after a minute."""

from pathlib import Path

import pytest
import yaml

from kernelcast.cli.app import run
from kernelcast.cli.demo import command
from kernelcast.cli.demo.run import simulation
from kernelcast.cli.demo.workspace import Endpoints, Workspace
from kernelcast.runtime.kafka.admin import TopicChange, TopicResult


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--duration", "0"),
        ("--duration", "inf"),
        ("--duration", "nan"),
        ("--kernels", "many"),
        ("--kernels", "0"),
        ("--speed", "fast"),
        ("--speed", "0"),
        ("--speed", "nan"),
        ("--source", "gpu"),
        ("--program", ""),
        ("--program", "no-such-command --fast"),
        ("--program", "python 'train.py"),
    ],
)
def test_a_value_that_makes_no_sense_is_named_with_its_option(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", option, value]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"kernelcast: {option} is ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("option", ["--directory", "--summary"])
def test_an_unwritable_path_is_refused_at_once(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / "below"
    assert run(["demo", "--source", "simulate", option, str(place)]) == 2
    assert f"{option} {place} cannot be written" in capsys.readouterr().err


def test_a_demo_that_does_not_start_leaves_no_empty_summary(tmp_path: Path) -> None:
    assert run(["demo", "--summary", str(tmp_path / "summary.json"), "--directory", "/proc/none"]) == 2
    assert not (tmp_path / "summary.json").exists()


def test_a_demo_that_does_not_start_leaves_a_link_to_the_summary(tmp_path: Path) -> None:
    link, target = tmp_path / "latest.json", tmp_path / "summary.json"
    link.symlink_to(target)
    assert run(["demo", "--summary", str(link), "--directory", "/proc/none"]) == 2
    assert link.is_symlink()
    assert not target.exists()


def test_the_summary_does_not_replace_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = TopicChange("kernelcast.device", TopicResult.FAILED, remark="not authorised")
    monkeypatch.setattr(command, "apply_topics", lambda _settings: [refused])
    trace = tmp_path / "trace.json"
    trace.write_text('{"traceEvents": []}')
    source = ["demo", "--source", f"kineto:{trace}", "--broker", "kafka:9092"]
    assert run([*source, "--summary", str(trace)]) == 2
    assert f"--summary {trace} is the recording; give another file" in capsys.readouterr().err


def test_a_broker_on_which_the_topics_cannot_be_made_is_not_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = TopicChange("kernelcast.device", TopicResult.FAILED, remark="not authorised")
    monkeypatch.setattr(command, "apply_topics", lambda _settings: [refused])
    assert run(["demo", "--source", "simulate", "--broker", "kafka:9092"]) == 1
    assert "kernelcast.device could not be made or set: not authorised" in capsys.readouterr().err


def test_on_a_kafka_of_the_users_own_the_demo_keeps_out_of_the_services_consumer_groups(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, Endpoints("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"), "kafka:9092")
    workspace.write_config(nvml="off", kernels="100")
    written = yaml.safe_load(workspace.config.read_text())
    groups = {written[service]["group_id"] for service in ("bridge", "predictor")}
    assert groups == {"kernelcast-demo-bridge", "kernelcast-demo-predictor"}


def test_a_second_demo_on_the_same_kafka_gets_a_hint_again_within_minutes(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, Endpoints("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"), "kafka:9092")
    workspace.write_config(nvml="off", kernels="100")
    assert yaml.safe_load(workspace.config.read_text())["predictor"]["hints"]["cooldown_seconds"] <= 120


def test_a_fault_replaces_the_demos_own_and_needs_a_simulation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual, chosen = simulation(()), simulation(("xid-79:gpu=2", "nvlink-down:gpu=1,start=2m"))
    assert [text for text in usual if text.startswith("thermal-drift")]
    assert [chosen[at + 1] for at, word in enumerate(chosen) if word == "--fault"] == [
        "xid-79:gpu=2",
        "nvlink-down:gpu=1,start=2m",
    ]
    assert not [text for text in chosen if text.startswith("thermal-drift")]
    recording = tmp_path / "trace.json"
    recording.touch()
    assert run(["demo", "--source", f"kineto:{recording}", "--fault", "xid-79"]) == 2
    assert "--fault is xid-79" in capsys.readouterr().err


def test_a_duration_that_is_no_number_is_named_with_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--duration", "abc"]) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "'--duration': it is 'abc'; give seconds, such as 120, or leave it out" in said
