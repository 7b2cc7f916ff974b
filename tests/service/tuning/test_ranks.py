"""Ranks as real processes, one of which is killed: the others end as they would without the probe."""

import re
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.faults.ranks.real import findings


def test_the_ranks_of_a_job_over_sockets_survive_the_kill_of_one(tmp_path: Path) -> None:
    assert findings("service", tmp_path, kill=True) == []


def test_two_ranks_over_gloo_meet_in_their_process_group(tmp_path: Path) -> None:
    assert findings("service", tmp_path, kind="gloo", ranks=2, kill=True) == []


def test_no_other_process_can_take_a_port_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, named = subprocess.Popen, []
    with ExitStack() as others:

        def start_after_others(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
            """Listen on each port of the command first, as another process may."""
            for port in map(int, re.findall(r"\d{4,5}", command[4])):
                named.append(port)
                with suppress(OSError):
                    others.enter_context(socket.create_server(("127.0.0.1", port)))
            return start(command, **options)

        monkeypatch.setattr(subprocess, "Popen", start_after_others)
        assert findings("taken", tmp_path, ranks=2, kill=False, environ={"RANKS_STEPS": "20"}) == []
    assert named


def test_a_job_whose_first_rank_fails_ends_with_that_error(tmp_path: Path) -> None:
    file = tmp_path / "fails-0.txt"
    file.mkdir()
    (found,) = findings("fails", tmp_path, kill=False)
    assert found == f"rank 0 ended with exit code 1: IsADirectoryError: [Errno 21] Is a directory: '{file}'"
