from collections.abc import Iterable

from tests.support.bridge.fleet import Known, Point, come_from, decoded, exposed_store, gauge, page

from kernelcast.bridge.series.wires import RETRIED_BESIDES
from kernelcast.bridge.tables.columns import METRIC_LIMIT, SERIES_LIMIT, STORED
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import SeriesIdentity


def test_series_beyond_the_limits_are_counted_by_cause_and_come_in_once_there_is_room() -> None:
    store = exposed_store(SeriesLimits(series=3, series_per_metric=2))
    identities = {i: gauge("a", attributes=(("i", str(i)),)) for i in range(3)}
    identities |= {i: gauge("b", attributes=(("i", str(i)),)) for i in range(3, 5)}
    known = Known(identities.__getitem__)
    outcomes = store.apply(decoded([Point(i, 1.0, 1) for i in range(5)]), come_from(), known)
    assert (outcomes[STORED], outcomes[METRIC_LIMIT], outcomes[SERIES_LIMIT]) == (3, 1, 1)
    store.apply(
        decoded([Point(1, 1.0, 2), Point(3, 1.0, 2)]),
        come_from(offset=1, append_ms=9_000),
        known,
    )
    store.expire({0: 5_000})
    outcomes = store.apply(decoded([Point(2, 1.0, 3)]), come_from(offset=2, append_ms=9_000), known)
    assert outcomes[STORED] == 1
    assert store.lines == 3


def test_series_far_beyond_the_limit_are_not_all_judged_again_at_every_expiry_and_each_has_its_turn() -> None:
    refused = 3 * RETRIED_BESIDES
    store = exposed_store(SeriesLimits(series=1, series_per_metric=1))
    judged: list[int] = []

    def identify(number: int) -> SeriesIdentity:
        judged.append(number)
        return gauge("a", attributes=(("i", str(number)),))

    known = Known(identify)

    def write(numbers: Iterable[int], append_ms: int) -> None:
        store.apply(decoded([Point(i, 1.0, 1) for i in numbers]), come_from(append_ms=append_ms), known)

    admitted = 0
    write(range(refused), 1_000)
    for append_ms in (10_000, 20_000, 30_000):
        others = [i for i in range(refused) if i != admitted]
        write(others, append_ms)
        seen = len(judged)
        store.expire({0: append_ms})
        write(others, append_ms)
        assert 0 < len(judged) - seen <= RETRIED_BESIDES + 1
        assert store.lines == 1
        admitted = judged[seen]
    assert set(judged[refused:]) >= set(range(1, refused))


def test_all_room_is_given_to_refused_series_wherever_the_last_ones_that_were_tried_again_ended() -> None:
    store = exposed_store(SeriesLimits(series=10))
    known = Known(lambda number: gauge("a", attributes=(("i", str(number)),)))
    numbers = range(10 + RETRIED_BESIDES + 3)

    def write(some: Iterable[int], append_ms: int) -> None:
        store.apply(decoded([Point(i, 1.0, append_ms) for i in some]), come_from(append_ms=append_ms), known)

    write(numbers, 1_000)
    write(numbers[1:], 2_000)
    assert store.expire({0: 1_500})[0] == 1
    write(numbers[10:], 3_000)  # one is admitted, two have not been tried again yet
    assert store.expire({0: 2_500})[0] == 9
    write(numbers[10:], 4_000)
    assert store.lines == 10


def test_expired_series_leave_nothing_behind_however_many_come_and_go() -> None:
    store = exposed_store()
    for generation in range(30):
        identities = {i: gauge(attributes=(("pod", f"{generation}-{i}"),)) for i in range(400)}
        known = Known(identities.__getitem__)
        points = [Point(i, 1.0, generation) for i in range(400)]
        store.apply(decoded(points), come_from(append_ms=generation * 10), known)
        removed, [(source, numbers)] = store.expire({0: generation * 10 + 1})
        assert (removed, source) == (400, known)
        assert sorted(numbers) == list(range(400))
    assert store._slots.used == 400
    assert len(store._slots.labels.sets.arena) < 1 << 21
    assert store.lines == 0
    assert page(store) == ""
