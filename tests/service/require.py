"""Checks for required programs: a missing one skips a test on a laptop and fails it in CI."""

import os
import shutil
from pathlib import Path
from typing import Final, NoReturn

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SELDOM_COLLECTING: Final = {"GOGC": "400"}
"""Go's setting for programs of tests: a fifth of promtool's processor time would go into collecting garbage."""


def in_ci() -> bool:
    """Whether a missing service must fail the run."""
    return os.environ.get("CI", "").lower() in ("1", "true") or os.environ.get("KERNELCAST_REQUIRE_SERVICES") == "1"


def missing(what: str, remedy: str) -> NoReturn:
    """Skip the test with the reason; in CI fail it."""
    reason = f"{what} is not on this machine; {remedy}"
    if in_ci():
        pytest.fail(f"{reason} (required in CI)")
    pytest.skip(reason)


def binary(name: str, package: str) -> str:
    """The path of a program, or a skip."""
    path = shutil.which(name)
    if path is None:
        missing(name, f"install the Debian package {package}")
    return path


def shared_data(*parts: str) -> Path:
    """A recording beside the checkout, or a skip: recordings are for developers and CI, not for users."""
    root = Path(os.environ.get("KERNELCAST_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"the recording {'/'.join(parts)} is not beside this checkout")
    return path
