"""For all tests: which run and in which order, hypothesis' profiles, and machine code that is compiled once."""

import gc
import logging
import os
import threading
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings
from tests.support import fast
from tests.support.examples import chosen_profile, register_profiles
from tests.support.once import once

WAITING = ("service", "faults")
"""Directories whose tests mostly wait."""
WAITED_SHARE = 0.8
"""Share of the run in which the files that wait are spread: the last of them ends before the files that compute."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--fast`."""
    parser.addoption("--fast", action="store_true", help="leave out tests that need machine code, processes, brokers")


def pytest_configure(config: pytest.Config) -> None:
    """Load hypothesis' profile before any test file is imported, as a property takes its number then."""
    register_profiles()
    # A value that a program of another test kept, or of this user's own, would be in force at a program's first step.
    os.environ["KERNELCAST_TUNING_DIRECTORY"] = "off"
    given = config.getoption("--hypothesis-profile", None)
    settings.load_profile(given or chosen_profile(fast=config.getoption("--fast")))
    if config.getoption("--fast"):
        # A test that is left out half-way closes no socket that it has opened.
        config.addinivalue_line("filterwarnings", "ignore::ResourceWarning")
        # Python 3.13.0 fails in the destructor of a leaked transport whose server has closed.
        leaked = "ignore:Exception ignored in. <function _SelectorTransport:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", leaked)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Under `--fast`, close the doors that such tests go through; pytest-xdist's controller must start processes."""
    config = session.config
    controls_workers = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if config.getoption("--fast") and not controls_workers:
        fast.close_doors()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the garbage collector, and exempt from it what collection made: modules, thousands of tests.

    All of that lives until the end. The collector would walk through it again and again, also while a test measures.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_report_header() -> str:
    """Name the profile at the top of the run."""
    return f"properties: profile {settings.get_current_profile_name()}, {settings().max_examples} examples each"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the night, and spread the files that wait among those that compute, for even load."""
    if config.getoption("--fast"):
        fast.mark(items)
    _leave_out_nightly(config, items)
    places = _places(list(dict.fromkeys(item.path for item in items)))
    items.sort(key=lambda item: places[item.path])


def _places(files: Sequence[Path]) -> dict[Path, float]:
    """A number for each file by which the run is sorted; files of one kind keep their order."""
    root = Path(__file__).parent
    waiting = [path for path in files if any(path.is_relative_to(root / name) for name in WAITING)]
    computing = [path for path in files if path not in waiting]
    places = {path: WAITED_SHARE * number / len(waiting) for number, path in enumerate(waiting)}
    return places | {path: number / len(computing) for number, path in enumerate(computing)}


def _leave_out_nightly(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `nightly`, unless `-m` speaks of them or the command line names a file."""
    named = any(argument.partition("::")[0].endswith(".py") for argument in config.args)
    if named or "nightly" in config.getoption("-m"):
        return
    left_out = [item for item in items if item.get_closest_marker("nightly")]
    items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Under `--fast`, print how many tests were left out and why."""
    if config.getoption("--fast"):
        ran, counts = _fast_results(terminalreporter)
        terminalreporter.write_line(fast.summary(ran, counts))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under `--fast`, fail a run that left out too many tests."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    is_worker = hasattr(session.config, "workerinput")
    if session.config.getoption("--fast") and reporter and not is_worker and not fast.enough(*_fast_results(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _fast_results(reporter: pytest.TerminalReporter) -> tuple[int, Counter[str]]:
    ran = len(reporter.getreports("passed")) + len(reporter.getreports("failed"))
    return ran, fast.left_out(reporter.getreports("skipped"))


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A test that runs a command in this process leaves its level of logging, and its hook, to no other test."""
    root = logging.getLogger()
    handlers, level, hook = root.handlers[:], root.level, threading.excepthook
    yield
    threading.excepthook = hook
    root.handlers[:] = handlers
    root.setLevel(level)


def load_machine_code() -> None:
    """Compile parts that are not on disk, and load all into this process; in a fresh clone this takes a minute."""
    from kernelcast.bridge.warm_up import PARTS

    for part in PARTS.values():
        part.compile()


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Machine code on disk, where the bridges that a test starts find it; one process of a run compiles it."""
    once(tmp_path_factory, "compiled", load_machine_code)


@pytest.fixture(scope="session")
def loaded() -> None:
    """Machine code in this process, for tests that look at it or wait for what calls it."""
    load_machine_code()
