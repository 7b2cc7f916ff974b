from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.isolation import isolated


@pytest.fixture(autouse=True)
def _isolated(request: pytest.FixtureRequest) -> Iterator[None]:
    """A unit test starts no process and no server, and does not sleep."""
    with isolated(request.path.relative_to(Path(__file__).parent).as_posix()):
        yield
