"""The file with the stacks of all threads."""

from pathlib import Path

import pytest

from kernelcast.probe.reporting.stacks import write_stacks

NONCE = "0123456789abcdef"


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    (tmp_path / "probe.sock.stacks").mkdir()
    return tmp_path / "probe.sock"


def test_it_has_every_thread_with_its_calls_for_its_owner_only(socket: Path) -> None:
    write_stacks(str(socket), NONCE, "train, rank 2, process 7", {})
    path = socket.with_name("probe.sock.stacks") / NONCE
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert text.startswith("train, rank 2, process 7, ")
    assert "Thread MainThread" in text
    assert "in test_it_has_every_thread_with_its_calls_for_its_owner_only" in text
    assert "flight recorder" not in text
    write_stacks(str(socket), NONCE, "again", {})
    assert path.read_text().startswith("again")


def test_it_names_the_files_of_pytorchs_flight_recorder_where_it_is_on(socket: Path) -> None:
    path = socket.with_name("probe.sock.stacks") / NONCE
    environ = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/data/nccl_"}
    write_stacks(str(socket), NONCE, "train", environ)
    assert "at a timeout it writes /data/nccl_RANK" in path.read_text()
    write_stacks(str(socket), NONCE, "train", {"TORCH_FR_BUFFER_SIZE": "0"})
    assert "flight recorder" not in path.read_text()


def test_without_the_exporters_directory_or_through_a_link_nothing_is_written(tmp_path: Path, socket: Path) -> None:
    write_stacks(str(tmp_path / "other.sock"), NONCE, "train", {})
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / "probe.sock.stacks" / f"{NONCE}.tmp").symlink_to(target)
    write_stacks(str(socket), NONCE, "train", {})
    assert target.read_text() == "kept"
