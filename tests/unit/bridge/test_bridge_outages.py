"""Outages of Kafka by its append times."""

import numpy as np
import pytest

from kernelcast.bridge.partitions.contact import Contact
from kernelcast.bridge.partitions.outages import UNENDED, Outage, OutageRows, away_ms


def rows(*outages: Outage, partition: int = 3) -> OutageRows:
    return OutageRows.of((partition, one) for one in outages)


@pytest.mark.parametrize(
    ("since_ms", "expected_ms"),
    [
        pytest.param(80, 40, id="seen before it"),
        pytest.param(100, 30, id="seen in it"),
        pytest.param(130, 0, id="seen with the first message after it"),
        pytest.param(140, 0, id="seen after it"),
    ],
)
def test_only_the_part_of_an_outage_after_a_series_was_seen_is_no_silence(since_ms: int, expected_ms: int) -> None:
    outages = rows(Outage(90, 95, 130))
    partitions, heard_ms = np.array([3, 2], np.int32), np.array([200, 200])
    found = away_ms(outages, outages.began_ms, partitions, np.array([since_ms, since_ms]), heard_ms)
    assert found.tolist() == [expected_ms, 0]


def test_outages_one_after_the_other_add_up() -> None:
    outages = rows(Outage(100, 105, 130), Outage(150, 155, 160))
    seen_ms = np.array([90, 140, 170])
    found = away_ms(outages, outages.began_ms, np.full(3, 3, np.int32), seen_ms, np.full(3, 200))
    assert found.tolist() == [40, 10, 0]


def test_an_outage_without_an_end_reaches_as_far_as_kafka_is_known() -> None:
    outages = rows(Outage(100, 105))
    found = away_ms(outages, outages.noticed_ms, np.array([3], np.int32), np.array([90]), np.array([110]))
    assert found.tolist() == [5]


def test_the_first_message_after_an_outage_is_its_end_in_whichever_order_messages_are_read() -> None:
    outage = Outage(100, 105)
    for append_ms, ended_ms in (([], UNENDED), ([90, 105], UNENDED), ([170, 180], 170), ([200, 130, 103], 130)):
        outage.note_appends(np.array(append_ms, np.int64))
        assert outage.ended_ms == ended_ms
    assert (outage.length_ms(120), outage.length_ms(500)) == (20, 30)


def test_outages_are_forgotten_after_contact_for_one_time_to_live() -> None:
    contact = Contact(0.0)
    contact.unanswered(began_ms=0, noticed_ms=5_000)
    contact.unanswered(began_ms=9_000, noticed_ms=15_000)
    assert contact.outages == [Outage(0, 5_000)]
    contact.answered(20, 60)
    contact.answered(80, 60)
    assert len(contact.outages) == 1
    contact.answered(81, 60)
    assert contact.outages == []


def test_of_many_short_outages_only_those_of_the_last_time_to_live_of_contact_count() -> None:
    contact, ttl_seconds = Contact(0.0), 300
    for start in range(0, 120_000, 120):  # each lasts 20 s, and 100 s of contact follow
        contact.unanswered(began_ms=start * 1e3, noticed_ms=start * 1e3 + 5e3)
        contact.answered(start + 20, ttl_seconds)
        contact.answered(start + 120, ttl_seconds)
    assert contact.silent_ms(120_000, ttl_seconds) == 3 * 20_000
    assert len(contact.outages) == 3
