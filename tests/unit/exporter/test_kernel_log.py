"""XIDs from the kernel's log: also those that occurred while no exporter ran."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from kernelcast.columnar import Sample
from kernelcast.exporter.kernel_log import check
from kernelcast.exporter.kernel_log.position import Position, PositionFile
from kernelcast.exporter.kernel_log.reader import KernelLog, LoggedXid, xid_of
from kernelcast.exporter.kernel_log.source import KernelLogSource, LogCounts, NodeGpus
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.wire.catalogue.devices import gpu as rows
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.identity import Device

SECOND_NS = 1_000_000_000
NOW_NS = 10_000 * SECOND_NS
BOOT = "b00t-1"
GPU = Device("node1", "GPU-1", "3", "00000000:0A:00.0", "nvidia3", "NVIDIA H200")
FELL = "NVRM: Xid (PCI:0000:0a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
FAULT = "NVRM: Xid (PCI:0000:0a:00): 31, pid=1234, name=python, Ch 00000008, MMU Fault"


class FakeLog:
    """/dev/kmsg as a pipe that keeps packets apart: one record a read, and EAGAIN at the end."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
        self.path = Path(f"/proc/self/fd/{self.read_end}")
        self._next = 100

    def write(self, message: str, *, at_seconds: float = 5.0, priority: int = 4, sequence: int | None = None) -> None:
        self._next = self._next + 1 if sequence is None else sequence
        record = f"{priority},{self._next},{round(at_seconds * 1e6)},-;{message}\n SUBSYSTEM=pci\n DEVICE=+pci:0a\n"
        os.write(self._write_end, record.encode())

    def close(self) -> None:
        os.close(self.read_end)
        os.close(self._write_end)


@pytest.fixture
def log() -> Iterator[FakeLog]:
    made = FakeLog()
    yield made
    made.close()


class Node:
    """The source of one run of the exporter."""

    def __init__(self, log: FakeLog, directory: Path, devices: tuple[Device, ...] = (GPU,)) -> None:
        self.errors: list[str] = []
        self.lost: list[int] = []
        self.source = KernelLogSource(
            KernelLog(log.path, clock=lambda: NOW_NS, monotonic=lambda: 60 * SECOND_NS),
            PositionFile(directory, boot_id=BOOT),
            gpus=NodeGpus("node1", lambda: devices),
            counts=LogCounts(self.errors.append, self.lost.append),
        )

    def poll(self) -> tuple[Sample, ...]:
        self.source.refresh()
        return self.source.poll(NOW_NS).samples


def counts(samples: tuple[Sample, ...]) -> dict[str, Any]:
    return {dict(one.attributes)["xid"]: one.value for one in samples if one.metric is rows.KERNEL_LOG_XIDS}


def test_an_xid_is_counted_with_its_gpu_meaning_and_time_after_a_0(log: FakeLog, tmp_path: Path) -> None:
    node = Node(log, tmp_path)
    assert node.poll() == ()
    log.write(FELL, at_seconds=50)
    assert counts(node.poll()) == {"79": 0}
    samples = node.poll()
    assert counts(samples) == {"79": 1}
    labels = dict(samples[0].attributes)
    assert (labels["UUID"], labels["gpu"], labels["err_msg"]) == ("GPU-1", "3", "GPU has fallen off the bus")
    (last,) = [one.value for one in samples if one.metric is rows.KERNEL_LOG_XID_LAST]
    assert last == (NOW_NS - 10 * SECOND_NS) / SECOND_NS


def test_xids_logged_while_no_exporter_ran_are_counted_once(log: FakeLog, tmp_path: Path) -> None:
    first = Node(log, tmp_path)
    first.poll()
    log.write(FAULT)
    for _ in range(3):
        first.poll()
    first.source.close()
    log.write(FAULT)
    log.write(FELL)
    second = Node(log, tmp_path)
    second.poll()
    assert counts(second.poll()) == {"31": 1, "79": 1}


def test_an_exporter_that_never_ran_before_has_missed_nothing(log: FakeLog, tmp_path: Path) -> None:
    log.write(FELL)
    node = Node(log, tmp_path)
    node.poll()
    assert counts(node.poll()) == {}


def test_after_a_reboot_all_of_the_new_log_is_unread(log: FakeLog, tmp_path: Path) -> None:
    PositionFile(tmp_path, boot_id="earlier").save(Position("earlier", 5_000))
    log.write(FELL)
    node = Node(log, tmp_path)
    node.poll()
    assert counts(node.poll()) == {"79": 1}


def test_an_xid_that_was_not_shown_before_a_kill_is_read_again(log: FakeLog, tmp_path: Path) -> None:
    node = Node(log, tmp_path)
    node.poll()
    log.write(FELL, sequence=101)
    node.poll()  # shows 0, and is killed
    log.write(FELL, sequence=101)  # the log still holds it
    again = Node(log, tmp_path)
    again.poll()
    assert counts(again.poll()) == {"79": 1}


def test_a_program_that_writes_to_the_log_cannot_make_an_xid(log: FakeLog, tmp_path: Path) -> None:
    node = Node(log, tmp_path)
    node.poll()
    log.write(FELL, priority=12)  # facility user: written to /dev/kmsg, not by the kernel
    log.write(f"audit: comm={FELL}")
    node.poll()
    assert counts(node.poll()) == {}


def test_records_that_were_overwritten_are_counted(log: FakeLog, tmp_path: Path) -> None:
    node = Node(log, tmp_path)
    log.write("usb 1-1: new device", sequence=10)
    node.poll()
    log.write("usb 1-2: new device", sequence=15)
    node.poll()
    assert node.lost == [4]


def test_after_a_reboot_records_that_were_overwritten_before_the_exporter_started_are_counted(
    log: FakeLog, tmp_path: Path
) -> None:
    PositionFile(tmp_path, boot_id="earlier").save(Position("earlier", 5_000))
    log.write("usb 1-1: new device", sequence=7)
    node = Node(log, tmp_path)
    node.poll()
    assert node.lost == [7]


def test_a_gpu_that_nvml_does_not_list_is_named_by_its_address(log: FakeLog, tmp_path: Path) -> None:
    node = Node(log, tmp_path, devices=())
    node.poll()
    log.write(FELL)
    (sample, *_) = node.poll()
    assert dict(sample.attributes)["pci_bus_id"] == "00000000:0A:00.0"
    assert "UUID" not in dict(sample.attributes)


def test_a_log_that_may_not_be_read_is_counted_and_costs_nothing_else(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "kmsg")
    errors: list[str] = []
    position = PositionFile(tmp_path, boot_id=BOOT)
    counts_ = LogCounts(errors.append, lambda _records: None)
    source = KernelLogSource(log, position, gpus=NodeGpus("n", lambda: ()), counts=counts_)
    source.refresh()
    assert source.poll(NOW_NS).samples == ()
    assert errors == ["kernel_log"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"version": 99}',
        '{"version": 1, "boot_id": 5, "sequence": "x"}',
        '{"version": 1, "boot_id": 5, "sequence": 1e999}',
    ],
)
def test_a_position_that_cannot_be_read_is_as_if_there_were_none(tmp_path: Path, text: str) -> None:
    file = PositionFile(tmp_path, boot_id=BOOT)
    file.path.write_text(text)
    assert file.load() is None


def test_a_position_of_another_version_is_refused_with_a_sentence(tmp_path: Path) -> None:
    file = PositionFile(tmp_path, boot_id=BOOT)
    file.path.write_text('{"version": 99}')
    with capture_logs() as logs:
        assert file.load() is None
    assert [line["reason"] for line in logs] == ["it has version 99; this exporter reads 1"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (FELL, (0, 0x0A, 0, 79)),
        ("NVRM: Xid (0000:03:00): 13, Graphics Exception", (0, 3, 0, 13)),
        ("NVRM: Xid (PCI:0001:c1:00.0): 119, Timeout", (1, 0xC1, 0, 119)),
        ("NVRM: Xid (PCI:0000:0a:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9)", (0, 0x0A, 0, 94)),
        ("NVRM: Xid (PCI:0000:0a:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a, Graphics Exception", (0, 0x0A, 0, 13)),
        ("NVRM: GPU at PCI:0000:0a:00: GPU-1", None),
        ("NVRM: Xid (PCI:0000:0a:00): many", None),
    ],
)
def test_messages_of_every_driver_are_understood(message: str, expected: tuple[int, ...] | None) -> None:
    found = xid_of(message)
    assert (found and (*found.address, found.xid)) == expected
    assert found is None or isinstance(found, LoggedXid)


def test_one_reading_is_bounded_and_the_rest_follows(
    log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(log, tmp_path)
    node.poll()
    monkeypatch.setattr("kernelcast.exporter.kernel_log.reader.MAX_RECORDS", 4)
    for _ in range(10):
        log.write(FAULT)
    totals = [counts(node.poll())["31"] for _ in range(5)]
    assert totals == [0, 8, 10, 10, 10]


def test_a_long_log_is_skipped_whole_at_the_first_start(
    log: FakeLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelcast.exporter.kernel_log.reader.MAX_RECORDS", 4)
    for _ in range(10):
        log.write(FAULT)
    node = Node(log, tmp_path)
    for _ in range(6):
        samples = node.poll()
    assert counts(samples) == {}


def test_without_a_state_directory_it_is_refused_with_the_remedy() -> None:
    settings = ExporterSettings(kernel_log="on", state_directory=None)
    with pytest.raises(ConfigurationError, match=r"kernel_log is on and .*state_directory is null.*or set .* to off"):
        check(settings)
    check(ExporterSettings(kernel_log="off", state_directory=None))
