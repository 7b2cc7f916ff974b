"""Limits repeated log lines: a line is written once in ten seconds, with the number of equal lines held back since.

`logging.configure` adds the filter to the process's only handler.
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

INTERVAL_SECONDS: Final = 10.0
MAX_LINES_REMEMBERED: Final = 1_024
"""Different lines; with more, the one that passed longest ago is forgotten."""

_DIGITS: Final = re.compile(r"\d+")


class RepeatLimit(logging.Filter):
    """Drops a log line if the same text (without numbers) passed in the last ten seconds; keeps all debug lines.

    Any thread that logs calls it, without a lock: the worst result of a race is one line more or a wrong count.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._seen: OrderedDict[tuple[str, int, str], tuple[float, int]] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide on a record; one that passes says in `suppressed` how many did not."""
        if record.levelno <= logging.DEBUG:
            return True
        key = (record.name, record.levelno, _comparable_text(record))
        now = self._clock()
        passed_at, held_back = self._seen.get(key, (float("-inf"), 0))
        if now - passed_at < INTERVAL_SECONDS:
            self._seen[key] = (passed_at, held_back + 1)
            return False
        record.suppressed = held_back
        # Two steps that cannot raise: another thread may have made the limit forget the key by now.
        self._seen.pop(key, None)
        self._seen[key] = (now, 0)
        while len(self._seen) > MAX_LINES_REMEMBERED:
            self._seen.popitem(last=False)
        return True


def _comparable_text(record: logging.LogRecord) -> str:
    """Return the text by which lines are compared: the message and its text fields, without numbers."""
    if isinstance(record.msg, dict):
        fields = sorted((name, value) for name, value in record.msg.items() if isinstance(value, str) and name != "ts")
        text = repr(fields)
    else:
        text = record.getMessage()
    return _DIGITS.sub("#", text)[:500]
