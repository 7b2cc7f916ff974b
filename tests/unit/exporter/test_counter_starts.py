"""Start times of counters that have none of their own."""

from kernelcast.exporter.counter_starts import MAX_COUNTERS, KeyedStarts


def test_a_counter_starts_at_boot_or_its_first_reading_until_it_falls() -> None:
    for starts, first_ns in ((KeyedStarts(7), 7), (KeyedStarts(), 10)):
        assert [starts("a", value, now_ns) for value, now_ns in ((5, 10), (9, 20), (2, 30), (4, 40))] == [
            first_ns,
            first_ns,
            30,
            30,
        ]


def test_counters_that_were_not_read_for_longest_are_forgotten_first() -> None:
    starts = KeyedStarts()
    starts("kept", 5, 1)
    for number in range(2 * MAX_COUNTERS):
        starts(number, 1, 2)
        assert starts("kept", 5, 2) == 1, "a counter that is read keeps its start"
    assert len(starts._counters) == MAX_COUNTERS
    assert starts(0, 1, 9) == 9
