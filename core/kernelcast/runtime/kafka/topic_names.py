"""The topics that a service reads: names, and regular expressions, which begin with `^`."""

import re
from collections.abc import Iterable


class TopicNames:
    """Names and patterns of topics.

    >>> names = TopicNames(["metrics", "^site-"])
    >>> [topic in names for topic in ("metrics", "metrics-2", "site-a", "__consumer_offsets")]
    [True, False, True, False]
    """

    def __init__(self, topics: Iterable[str]) -> None:
        """Compile the patterns.

        Raises:
            re.error: A regular expression is malformed.
        """
        chosen = list(topics)
        self._names = frozenset(name for name in chosen if not name.startswith("^"))
        self._patterns = [re.compile(name) for name in chosen if name.startswith("^")]

    def __contains__(self, topic: str) -> bool:
        """Whether a topic is to be read; patterns do not match Kafka's internal topics."""
        if topic in self._names:
            return True
        return not topic.startswith("__") and any(pattern.search(topic) for pattern in self._patterns)
