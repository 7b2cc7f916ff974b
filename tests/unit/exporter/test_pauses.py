"""Pauses of a node's programs: alerts on their GPU, node or job, quiet hours and the site's policy."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.runtime.kafka_record import Record

from kernelcast.exporter.hints.inbox import InboxByTopic
from kernelcast.exporter.hints.orders import StoppedFile
from kernelcast.exporter.hints.pauses import FORGOTTEN_NS, MAX_ALERTS, AlertInbox, PausedPrograms, PolicyInbox
from kernelcast.probe.conditions.pauses import ABANDONED_SECONDS
from kernelcast.probe.conditions.pauses import PauseChecks as ProbePauses
from kernelcast.wire.cloudevents import NANOSECONDS, encode_event
from kernelcast.wire.events import Alert, to_event
from kernelcast.wire.identity import Device, Process
from kernelcast.wire.topics import ALERTS, POLICY
from kernelcast.wire.tuning.experience import Experience, experience_event
from kernelcast.wire.tuning.pauses import PAUSED_FILE, SPACES_FILE
from kernelcast.wire.tuning.policy import Mode, Policy, policy_event

NOON_NS = 1_800_014_400 * NANOSECONDS
GPUS = (Device("node1", "GPU-0", "0"), Device("node1", "GPU-1", "1"))


@dataclass
class Running:
    process: Process
    devices: tuple[Device, ...]


TRAIN = Running(Process("train", "n1", 1), GPUS[:1])
SERVE = Running(Process("serve", "n2", 1), GPUS[1:])


def message(topic: str, body: bytes | None, key: str = "", time_ns: int = NOON_NS) -> Record:
    return Record((topic, 0, 0), body, time_ns // 1_000_000, keyed=key.encode())


class Node:
    """The node `node1` with two programs, each on a GPU of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now_ns = NOON_NS
        self.dead_letters: list[str] = []
        self.taught: list[Experience] = []
        files = (StoppedFile(directory, PAUSED_FILE), StoppedFile(directory, SPACES_FILE))
        self.pauses = PausedPrograms("node1", *files, clock=lambda: self.now_ns)
        self.inbox = InboxByTopic(
            {ALERTS.name: AlertInbox(self.pauses), POLICY.name: PolicyInbox(self.pauses, self.teach, self)}
        )
        self.inbox.caught_up()

    def teach(self, experience: Experience) -> None:
        self.taught.append(experience)

    def send(self, message: Any, error: Exception) -> None:  # noqa: ARG002  the protocol's
        self.dead_letters.append(str(error))

    def alert(self, status: str = "firing", *, fingerprint: str = "f1", **labels: str) -> None:
        alert = Alert(fingerprint, status, "2026-01-01T00:00:00Z", labels={"alertname": "TooHot", **labels})
        body = encode_event(to_event(alert, source="/test", time_ns=NOON_NS))
        self.inbox.receive(message(ALERTS.name, body, fingerprint, self.now_ns))

    def policy(self, **facts: Any) -> None:
        body = encode_event(policy_event(Policy(**facts), source="/test"))
        self.inbox.receive(message(POLICY.name, body, "policy"))

    def paused(self) -> dict[str, str]:
        """The reasons that the programs themselves find."""
        self.pauses.apply([TRAIN, SERVE])
        found = {name: ProbePauses([str(self.directory)], name) for name in ("train", "serve", "later")}
        return {name: reason for name, one in found.items() if (reason := one.reason())}


@pytest.mark.parametrize(
    ("labels", "programs"),
    [
        ({"UUID": "GPU-0", "Hostname": "node1", "gpu": "0"}, {"train"}),
        ({"UUID": "GPU-1"}, {"serve"}),
        ({"Hostname": "node1", "gpu": "1"}, {"serve"}),
        ({"Hostname": "node2", "gpu": "1"}, set()),
        ({"Hostname": "node1"}, {"train", "serve", "later"}),
        ({"node": "node1", "severity": "warning"}, {"train", "serve", "later"}),
        ({"Hostname": "node2"}, set()),
        ({"program": "train", "Hostname": "node2", "UUID": "GPU-9"}, {"train"}),
        ({"program": "later"}, {"later"}),
        ({"Hostname": "node1", "severity": "info"}, set()),
        ({"Hostname": "node1", "severity": "none"}, set()),
        ({"program": "train", "alertname": "KernelcastHintWaitsForApproval"}, set()),
        ({"cluster": "a"}, set()),
    ],
)
def test_an_alert_pauses_the_programs_on_its_gpu_node_or_job(
    tmp_path: Path, labels: dict[str, str], programs: set[str]
) -> None:
    node = Node(tmp_path)
    node.alert(**labels)
    assert set(node.paused()) == programs
    node.alert("resolved", **labels)
    assert node.paused() == {}
    assert list(tmp_path.iterdir()) == []


def test_the_reason_names_the_alert_and_its_place(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.alert(UUID="GPU-0", Hostname="node1")
    assert node.paused() == {"train": "alert TooHot fires on node1 GPU-0"}


@pytest.mark.parametrize("program", ["*", "x\n*", "x\ty", "p" * 129])
def test_an_alert_on_a_program_of_another_system_pauses_nothing(tmp_path: Path, program: str) -> None:
    node = Node(tmp_path)
    node.alert(program=program)
    assert node.paused() == {}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("alerts", [[("train", "Too  hot")], [(f"{n:0128d}", "Too hot") for n in range(2_000)]])
def test_a_file_that_would_not_change_is_not_written_again(tmp_path: Path, alerts: list[tuple[str, str]]) -> None:
    node = Node(tmp_path)
    for number, (program, name) in enumerate(alerts):
        node.alert(fingerprint=str(number), program=program, alertname=name)
    assert "train" in node.paused()
    before = (tmp_path / PAUSED_FILE).stat().st_ino
    node.paused()
    assert (tmp_path / PAUSED_FILE).stat().st_ino == before


def test_a_repeated_alert_pauses_without_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon's thread writes the files while another thread reads Kafka."""
    node = Node(tmp_path)
    node.alert(program="train")
    meanwhile: list[dict[str, str]] = []
    concerns = node.pauses._concerns

    def judged(alert: Alert) -> bool:
        meanwhile.append(node.paused())
        return concerns(alert)

    monkeypatch.setattr(node.pauses, "_concerns", judged)
    node.alert(program="train")
    assert [list(paused) for paused in meanwhile] == [["train"]]


def test_an_alert_of_which_nothing_is_heard_for_a_day_is_over(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.alert(Hostname="node1")
    node.now_ns += FORGOTTEN_NS - NANOSECONDS
    assert node.paused()
    node.alert(Hostname="node1")
    node.now_ns += FORGOTTEN_NS - NANOSECONDS
    assert node.paused(), "it was repeated"
    node.now_ns += 2 * NANOSECONDS
    assert node.paused() == {}


def test_an_alert_that_is_removed_from_the_topic_and_garbage_pause_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.alert(Hostname="node1")
    node.inbox.receive(message(ALERTS.name, None, "f1"))
    node.inbox.receive(message(ALERTS.name, b"garbage", "f2"))
    assert node.paused() == {}


def test_alerts_are_bounded_and_the_oldest_are_dropped_and_counted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number in range(MAX_ALERTS + 3):
        node.alert(fingerprint=f"f{number}", program=f"p{number}")
    assert node.pauses.dropped == 3


def test_quiet_hours_pause_every_program(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.policy(quiet_hours=("11:00-13:00",))
    node.now_ns = 1_800_014_400 * NANOSECONDS // (86_400 * NANOSECONDS) * 86_400 * NANOSECONDS + 12 * 3600 * NANOSECONDS
    assert node.paused() == dict.fromkeys(("train", "serve", "later"), "quiet hours 11:00-13:00 UTC")
    node.now_ns += 3600 * NANOSECONDS
    assert node.paused() == {}


@pytest.mark.parametrize(
    ("modes", "programs"),
    [
        ({"train": Mode.OFF}, {"train"}),
        ({"*": Mode.OFF}, {"train", "serve", "later"}),
        ({"*": Mode.OFF, "train": Mode.TUNE, "later": Mode.PROPOSE}, {"serve"}),
        ({"*": Mode.PROPOSE}, set()),
    ],
)
def test_the_mode_off_pauses_programs_those_that_start_later_too(
    tmp_path: Path, modes: dict[str, Mode], programs: set[str]
) -> None:
    node = Node(tmp_path)
    node.policy(modes=modes)
    assert set(node.paused()) == programs
    node.inbox.receive(message(POLICY.name, None, "policy"))
    assert node.paused() == {}


def test_the_mode_propose_pauses_the_searches_of_programs_alone(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.policy(modes={"*": Mode.PROPOSE, "train": Mode.TUNE})
    assert node.paused() == {}
    assert ProbePauses([str(tmp_path)], "train").spaces() == ""
    assert "the site's policy is propose" in ProbePauses([str(tmp_path)], "serve").spaces()


def test_nothing_changes_before_everything_was_read(tmp_path: Path) -> None:
    """A restarted exporter must not lift the pauses of its last run for a moment."""
    file = StoppedFile(tmp_path, PAUSED_FILE)
    file.write({"train": "alert TooHot fires"})
    pauses = PausedPrograms("node1", file, StoppedFile(tmp_path, SPACES_FILE), clock=lambda: NOON_NS)
    pauses.apply([TRAIN])
    assert file.read() == {"train": "alert TooHot fires"}
    pauses.caught_up()
    pauses.apply([TRAIN])
    assert not file.path.exists()


def test_a_policy_that_cannot_be_read_is_a_dead_letter_and_the_old_one_stays(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.policy(modes={"train": Mode.OFF})
    node.inbox.receive(message(POLICY.name, b"{}", "policy"))
    assert "specversion" in node.dead_letters[0]
    assert set(node.paused()) == {"train"}


def test_a_file_that_no_exporter_renews_does_not_pause_for_ever(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.alert(program="train")
    assert set(node.paused()) == {"train"}
    old = time.time() - ABANDONED_SECONDS - 1
    os.utime(tmp_path / PAUSED_FILE, (old, old))
    assert ProbePauses([str(tmp_path)], "train").reason() == ""
    assert set(node.paused()) == {"train"}, "the exporter renews it"


def test_a_folder_that_cannot_be_written_does_not_end_the_interval(tmp_path: Path) -> None:
    node = Node(tmp_path / "missing")
    node.alert(program="train")
    assert node.paused() == {}


def test_findings_of_searches_are_passed_on_and_a_removed_one_changes_no_policy(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.policy(modes={"train": Mode.OFF})
    found = Experience("train", "conv.run", "A100", "v1", ("[1024]",))
    body = encode_event(experience_event(found, source="/test", time_ns=1))
    node.inbox.receive(message(POLICY.name, body, found.key))
    node.inbox.receive(message(POLICY.name, None, found.key))
    assert node.taught == [found]
    assert set(node.paused()) == {"train"}
