"""The partitions of a topic are counted once the broker that is asked knows them."""

from types import SimpleNamespace
from typing import Any

from tests.service.topics import partitions


class LateBroker:
    """Knows a new topic from the third question on, with its leaders from the fourth; a double of the admin client."""

    def __init__(self) -> None:
        self.asked = 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Metadata of the topic as the broker knows it at this question."""
        assert timeout > 0
        self.asked += 1
        leader = 1 if self.asked > 3 else -1
        known = {number: SimpleNamespace(leader=leader) for number in range(2)} if self.asked > 2 else {}
        error = None if known else "UNKNOWN_TOPIC_OR_PART"
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions=known, error=error)})


def test_a_topic_that_the_broker_does_not_know_yet_is_asked_for_again() -> None:
    broker = LateBroker()
    assert partitions(broker, "new") == 2  # type: ignore[arg-type]
    assert broker.asked == 4
