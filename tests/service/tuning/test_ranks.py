"""Ranks as real processes, one of which is killed: the others end as they would without the probe."""

import subprocess
from pathlib import Path

import pytest
from tests.faults.ranks.real import TORCH_PYTHON, findings


def test_the_ranks_of_a_job_over_sockets_survive_the_kill_of_one(tmp_path: Path) -> None:
    assert findings("service", tmp_path, kill=True) == []


def test_two_ranks_over_gloo_meet_in_their_process_group(tmp_path: Path) -> None:
    if subprocess.run([TORCH_PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip("PyTorch is not installed for Debian's interpreter: apt-get install python3-torch")
    assert findings("service", tmp_path, kind="gloo", ranks=2, kill=True) == []
