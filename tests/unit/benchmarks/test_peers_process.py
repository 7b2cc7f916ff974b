"""The end of a process's work in readings of its processor time."""

from collections.abc import Iterable

import pytest
from benchmarks.peers.process import Activity


def activity(busy: Iterable[tuple[float, float, float]], until: float) -> Activity:
    """Readings every 5 ms of a process that uses a share of a core in each of some periods (begin, end, share)."""
    busy, cpu, now = list(busy), 0.0, 0.0
    found = Activity(now, cpu)
    for i in range(1, round(until / 0.005) + 1):
        now = i * 0.005
        cpu += sum(share * 0.005 for begin, end, share in busy if begin < now <= end + 1e-9)
        found.read(now, cpu)
    return found


@pytest.mark.parametrize(
    ("busy", "end", "cpu"),
    [
        ([(0.01, 0.04, 0.9)], 0.04, 0.027),
        ([(0.01, 0.2, 0.9), (1.0, 1.01, 1.0)], 0.2, 0.171),  # a task of 10 ms once a second
        ([(0.01, 0.2, 0.9), (0.9, 0.95, 1.0)], 0.95, 0.221),  # work after a pause
        ([(0.05, 0.06, 1.0), (0.1, 0.11, 1.0), (1.0, 1.01, 1.0)], 0.11, 0.02),  # little work, with waits
        ([(0.01, 0.2, 0.9), (0.2, 3.0, 0.05)], 0.2, 0.171),
        ([(0.0, 3.0, 0.05)], 0.0, 0.0),
    ],
)
def test_the_end_of_work_is_found_to_the_poll_and_small_periodic_tasks_are_no_work(
    busy: list[tuple[float, float, float]], end: float, cpu: float
) -> None:
    assert activity(busy, 3.0).end == pytest.approx((end, cpu), abs=1e-6)


def test_a_process_is_at_rest_from_its_last_busy_window_on() -> None:
    assert activity([(0.01, 0.2, 0.9)], 3.0).busy_at == pytest.approx(0.2, abs=0.05)
