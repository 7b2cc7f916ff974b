"""Which processes of a launch write, by environment and modules of the test."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernelcast.probe.terminal.role import launch_role


def distributed(rank: int) -> dict[str, Any]:
    return {"torch.distributed": SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: rank)}


def child(*identity: int) -> dict[str, Any]:
    process = SimpleNamespace(_identity=identity)
    return {"multiprocessing.process": SimpleNamespace(parent_process=object, current_process=lambda: process)}


@pytest.mark.parametrize(
    ("environ", "modules", "rank", "expected"),
    [
        ({}, {}, "", (True, True)),
        ({"LOCAL_RANK": "0"}, {}, "0", (True, True)),
        ({"LOCAL_RANK": "1"}, {}, "1", (False, False)),
        ({"LOCAL_RANK": "0"}, {}, "8", (True, False)),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "3", "SLURM_LOCALID": "0"}, {}, "3", (False, False)),
        ({}, {}, "2", (False, False)),
        ({}, distributed(0), "", (True, True)),
        ({}, distributed(1), "", (False, False)),
        ({}, child(1), "", (True, True)),
        ({}, child(2), "", (False, False)),
        ({}, child(1, 3), "", (False, False)),
        ({}, distributed(0) | child(4), "", (True, True)),
    ],
)
def test_the_first_process_of_a_node_writes_lines_and_the_first_of_the_job_the_summary(
    environ: dict[str, str], modules: dict[str, Any], rank: str, expected: tuple[bool, bool]
) -> None:
    assert launch_role(environ, modules, rank) == (*expected, False)


def test_the_user_and_a_run_of_pytest_silence_it() -> None:
    assert launch_role({"KERNELCAST_QUIET": "1"}, {}, "").is_quiet
    assert not launch_role({"KERNELCAST_QUIET": "0"}, {}, "").is_quiet
    assert launch_role({}, {"pytest": pytest}, "").is_quiet
