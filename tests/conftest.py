"""For all tests: machine code that is compiled once, before anything is timed."""

import pytest

from kernelcast.bridge.push.warm_up import warm_up as warm_up_push
from kernelcast.bridge.warm_up import warm_up, warm_up_the_rest


@pytest.fixture(scope="session")
def compiled() -> None:
    """The bridges of a test find their machine code on disk; in a fresh clone it takes the first a minute to start."""
    warm_up()
    warm_up_the_rest()
    warm_up_push()
