"""Snapshots of version 1 are read; damaged parts are refused."""

import numpy as np
import pytest
from tests.support.predictor.first_version import dump

from kernelcast.predictor.series.snapshot import PartitionSnapshot, SavedSeries, load
from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.wire.errors import WireError

POINTS = 240


def snapshot(series: int, *, identity: str = "one") -> PartitionSnapshot:
    rng = np.random.default_rng(1)
    saved = tuple(
        SavedSeries(
            Subject("DCGM_FI_DEV_GPU_TEMP", Form.LEVEL, (("Hostname", "n1"), ("gpu", str(number)))),
            np.where(rng.random(POINTS) < 0.1, np.nan, rng.normal(70, 5, POINTS)).astype(np.float32),
            1000 + number,
            2000 + number,
            -5,
            float("nan") if number % 2 else 1e-3,
            float("nan"),
            "ets",
            (0.5, 0.01),
        )
        for number in range(series)
    )
    return PartitionSnapshot(identity, 4711, 10**10, POINTS, saved)


@pytest.mark.parametrize("series", [0, 1, 1000])
def test_a_snapshot_comes_back_as_it_was(series: int) -> None:
    before = snapshot(series)
    after = load(dump(before)[::-1])
    assert (after.identity, after.offset, after.interval_ns, after.points) == ("one", 4711, 10**10, POINTS)
    assert [one.subject for one in after.series] == [one.subject for one in before.series]
    for was, now in zip(before.series, after.series, strict=True):
        np.testing.assert_array_equal(was.values, now.values)
        assert (was.newest, was.last_ns, was.since, was.model, was.parameters) == (
            now.newest,
            now.last_ns,
            now.since,
            now.model,
            now.parameters,
        )
        np.testing.assert_equal((was.baseline, was.spread), (now.baseline, now.spread))


def test_parts_of_two_snapshots_are_never_mixed() -> None:
    old, new = dump(snapshot(1000, identity="old")), dump(snapshot(1000, identity="new"))
    with pytest.raises(WireError, match="parts"):
        load([new[0], *old[1:]])
    assert load([*old[1:], *new]).identity == "new"


@pytest.mark.parametrize("damage", [b"", b"KCPW", b"\x00" * 64])
def test_damaged_parts_are_refused(damage: bytes) -> None:
    with pytest.raises(WireError):
        load([damage])


def test_one_flipped_bit_is_noticed() -> None:
    part = bytearray(dump(snapshot(3))[0])
    part[-10] ^= 1
    with pytest.raises(WireError, match="checksum"):
        load([bytes(part)])
