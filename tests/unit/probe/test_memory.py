"""A value that a node has kept is in force at the first step of the next start, without any service."""

from pathlib import Path

import pytest

from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.settings import state_directory
from kernelcast.probe.tunables import Terms
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal


def settings(directory: Path, code_version: str = "v1") -> ProbeSettings:
    return ProbeSettings(
        "training", code_version=code_version, socket_path=str(directory / "none"), state_directory=str(directory)
    )


def first_value(
    directory: Path, allowed: list[int], code_version: str = "v1", environ: dict[str, str] | None = None
) -> tuple[int, str]:
    """Start a program and register its tunable, at 48; returns the value in force and the kept one."""
    probe = Probe(settings(directory, code_version), environ or {})
    block = probe.tunable("block", allowed, 48, Terms(kernels=("stencil",)))
    probe.abandon()
    return block.value, block.kept


def test_the_kept_value_is_in_force_at_the_first_step(tmp_path: Path) -> None:
    """Review: after a restart nothing at 0.2, 1, 6, 12 and 23 h, then the same trial again."""
    Journal(tmp_path, "training").end("block", "128", Decision.KEPT, "v1")
    assert first_value(tmp_path, [48, 128]) == (128, "128")


def test_another_version_a_value_no_longer_allowed_and_the_switch_start_as_the_program_says(tmp_path: Path) -> None:
    Journal(tmp_path, "training").end("block", "128", Decision.KEPT, "v1")
    assert first_value(tmp_path, [48, 128], "v2") == (48, "48")
    assert first_value(tmp_path, [48, 64]) == (48, "48")
    assert first_value(tmp_path, [48, 128], environ={"KERNELCAST_HINTS": "off"}) == (48, "48")
    (tmp_path / "hints.stop").touch()
    assert first_value(tmp_path, [48, 128]) == (48, "48")


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"KERNELCAST_TUNING_DIRECTORY": "/state"}, "/state"),
        ({"KERNELCAST_TUNING_DIRECTORY": "off", "HOME": "/home/a"}, ""),
        ({"XDG_STATE_HOME": "/x", "HOME": "/home/a"}, "/x/kernelcast/tuning"),
        ({"HOME": "/home/a"}, "/home/a/.local/state/kernelcast/tuning"),
        ({}, ""),
    ],
)
def test_the_folder_of_the_memory(environ: dict[str, str], folder: str) -> None:
    assert state_directory(environ) == folder
