"""The watch over several bridges finds a series that two of them expose at one time, and accuses no handover."""

from tests.service.replicas import Look, Watch


def watch(*looks: tuple[int, float, float, bool]) -> Watch:
    """A watch of two replicas that saw one series, or did not, from one time to another."""
    made = Watch(["first", "second"])
    for replica, began, ended, seen in looks:
        made.looks[replica].append(Look(began, ended, answered=True, values={"series": 1.0} if seen else {}))
    return made


def test_a_series_on_two_replicas_at_one_time_is_found() -> None:
    twice = watch((0, 0.0, 0.1, True), (1, 0.2, 0.3, True), (0, 0.25, 0.35, True), (0, 0.4, 0.5, True))
    assert ("series", 1, 0, 0.2) in twice.doubles()


def test_a_series_that_went_to_another_replica_and_came_back_is_no_double() -> None:
    there_and_back = watch(
        (0, 0.0, 0.1, True), (1, 0.2, 3.0, True), (0, 0.3, 0.4, False), (0, 2.9, 2.95, False), (0, 3.1, 3.2, True)
    )
    assert there_and_back.doubles() == []


def test_a_series_is_missed_from_the_look_before_a_handover_to_the_first_one_after_it() -> None:
    moved = watch((0, 0.0, 0.1, True), (0, 0.2, 0.3, False), (1, 0.2, 0.4, False), (1, 4.0, 4.1, True))
    assert moved.longest_gap("series") == 4.0 - 0.1
