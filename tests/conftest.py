"""For all tests: the order of the run, hypothesis' profiles, and machine code that is compiled once."""

from pathlib import Path

import pytest
from hypothesis import settings
from tests.support.examples import chosen_profile, register_profiles
from tests.support.once import once

FIRST = ("service", "faults")
"""Directories whose tests mostly wait. They begin the run, so that tests which compute fill the end of it evenly."""


def pytest_configure(config: pytest.Config) -> None:
    """Load hypothesis' profile before any test file is imported, as a property takes its number then."""
    register_profiles()
    settings.load_profile(config.getoption("--hypothesis-profile", None) or chosen_profile())


def pytest_report_header() -> str:
    """Name the profile at the top of the run."""
    return f"properties: profile {settings.get_current_profile_name()}, {settings().max_examples} examples each"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the tests that wait to the front, each file's together."""
    root = Path(__file__).parent
    waiting = tuple(root / name for name in FIRST)
    items.sort(key=lambda item: not any(item.path.is_relative_to(directory) for directory in waiting))


def load_machine_code() -> None:
    """Compile what is not on disk yet, and load it into this process; in a fresh clone this takes a minute."""
    from kernelcast.bridge.push.warm_up import warm_up as warm_up_push
    from kernelcast.bridge.warm_up import warm_up, warm_up_the_rest

    warm_up()
    warm_up_the_rest()
    warm_up_push()


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Machine code on disk, where the bridges that a test starts find it; one process of a run compiles it."""
    once(tmp_path_factory, "compiled", load_machine_code)


@pytest.fixture(scope="session")
def loaded() -> None:
    """Machine code in this process, for tests that look at it or wait for what calls it."""
    load_machine_code()
