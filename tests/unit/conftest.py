from collections.abc import Generator
from pathlib import Path

import pytest
from tests.support.isolation import isolated


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).as_posix()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Fixtures of a unit test, those of its module and session as well, start no process and no server."""
    with isolated(_file(item)):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A unit test starts no process and no server, and does not sleep."""
    with isolated(_file(item)):
        return (yield)
