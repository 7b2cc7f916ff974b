"""For all tests: no cyclic garbage collection while they run.

A Kafka client that a test leaves in a reference cycle is destroyed whenever the collector happens to run, in any later
test, and librdkafka's destructor of a consumer that was not closed can wait for ever for a broker that is gone.
"""

import gc

import pytest


def pytest_configure() -> None:
    """Collect nothing in cycles from here on."""
    gc.disable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what is left out of the collection that pytest itself runs at the end."""
    gc.freeze()
