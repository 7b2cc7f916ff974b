"""The times that a reader waits for the offsets of partitions."""

import time
from typing import Any

import pytest

from kernelcast.runtime.kafka.reader import PartitionReader

LIMIT_SECONDS = 0.25
"""Median of the waits: half of the time that a query waits behind a fetch with librdkafka's default."""


def timed_watermarks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list that gets the seconds of each query for the offsets of a partition from now on."""
    seconds: list[float] = []
    asked = PartitionReader.watermarks

    def timed(self: PartitionReader, partition: Any, **limit: Any) -> tuple[int, int]:
        began = time.monotonic()
        answer = asked(self, partition, **limit)
        seconds.append(time.monotonic() - began)
        return answer

    monkeypatch.setattr(PartitionReader, "watermarks", timed)
    return seconds
