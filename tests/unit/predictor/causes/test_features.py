"""Features from arrays of metrics, each against a figure that was computed by hand."""

from typing import Any

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.causes.features import features
from kernelcast.predictor.causes.find import find
from kernelcast.predictor.causes.observed import Around, Observed
from kernelcast.predictor.causes.program_features import peer_ratio
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.cause_rules import Excuse
from kernelcast.wire.catalogue.devices import device, gpu, nvlink
from kernelcast.wire.catalogue.features import THERMAL_MARGIN, Feature
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.catalogue.model import Metric

HOURS = 6
LENGTH = HOURS * 60
NOISE = np.random.default_rng(5)


def steady(level: float, share: float = 0.002) -> Floats:
    return level * (1 + share * NOISE.standard_normal((1, LENGTH)))


def from_minute(minute: int, before: float, after: float) -> Floats:
    return np.where(np.arange(LENGTH) < minute, before, after)[None].astype(np.float64)


def seen(values: dict[Metric, Floats], **around: Any) -> Observed:
    count = len(next(iter(values.values())))
    labels = [(("UUID", f"GPU-{number}"),) for number in range(count)]
    named = {metric.prometheus_name: array for metric, array in values.items()}
    return Observed(named, 60.0, labels, [10**18] * count, Around(**around))


def figure(feature: Feature, observed: Observed, row: int = 0) -> float:
    return float(features(observed).columns[feature].figure[row])


def causes(observed: Observed, row: int = 0) -> list[Cause]:
    return [one.cause for one in find(features(observed))[row].causes]


def reason(observed: Observed) -> Excuse | None:
    return find(features(observed))[0].reason


@pytest.mark.parametrize(
    ("bit", "feature", "cause"),
    [
        (0x80, Feature.POWER_BRAKE_SHARE, Cause.POWER_BRAKE),
        (0x40, Feature.HARDWARE_THERMAL_SHARE, Cause.THERMAL),
        (0x8, Feature.HARDWARE_SLOWDOWN_SHARE, Cause.HARDWARE_SLOWDOWN),
    ],
)
def test_a_reason_bit_counts_by_its_share_of_the_last_five_minutes(bit: int, feature: Feature, cause: Cause) -> None:
    lasting = seen({device.CLOCK_EVENT_REASONS: from_minute(LENGTH - 4, 0x4, 0x4 | bit)})
    short = seen({device.CLOCK_EVENT_REASONS: from_minute(LENGTH - 1, 0x4, 0x4 | bit)})

    assert figure(feature, lasting) == 0.8
    assert causes(lasting) == [cause]
    assert figure(feature, short) == 0.2
    assert causes(short) == []


def test_the_power_brake_sets_the_hardware_slowdown_bit_too_and_is_named_alone() -> None:
    assert causes(seen({device.CLOCK_EVENT_REASONS: from_minute(10, 0, 0x88)})) == [Cause.POWER_BRAKE]


def test_a_clock_is_compared_at_matched_load_only() -> None:
    idle_then_busy = {device.SM_CLOCK: from_minute(180, 345, 1980), device.GPU_UTIL: from_minute(180, 0, 90)}
    busy_then_idle = {device.SM_CLOCK: from_minute(LENGTH - 20, 1980, 345), device.GPU_UTIL: from_minute(340, 90, 0)}
    held_back = {device.SM_CLOCK: from_minute(LENGTH - 20, 1980, 1200), device.GPU_UTIL: steady(90.0)}

    assert figure(Feature.CLOCK_RATIO, seen(idle_then_busy)) == 1.0
    assert causes(seen(busy_then_idle)) == []
    assert figure(Feature.CLOCK_RATIO, seen(held_back)) == pytest.approx(1200 / 1980)
    assert causes(seen(held_back)) == [Cause.CLOCK_LOW]


def test_a_clock_that_has_been_low_for_most_of_the_time_is_low_and_not_usual() -> None:
    load = {device.GPU_UTIL: steady(90.0)}
    assert causes(seen({device.SM_CLOCK: from_minute(120, 1980, 1200), **load})) == [Cause.CLOCK_LOW]
    # Here a spell of boost is no usual clock.
    assert causes(seen({device.SM_CLOCK: from_minute(20, 1980, 1200), **load})) == []


def test_a_clock_under_the_software_power_cap_is_excused() -> None:
    capped = {
        device.SM_CLOCK: from_minute(LENGTH - 20, 1980, 1200),
        device.CLOCK_EVENT_REASONS: from_minute(LENGTH - 20, 0, 0x4),
    }
    assert reason(seen(capped)) is Excuse.SOFTWARE_POWER_CAP


def test_a_temperature_that_power_does_not_explain_is_thermal_and_one_that_it_does_is_load() -> None:
    hours = np.arange(LENGTH) / 60
    watts = 300 + np.where(hours > 2, 25 * (hours - 2), 0)[None] + 3 * NOISE.standard_normal((1, LENGTH))
    noise = 0.3 * NOISE.standard_normal((1, LENGTH))
    cooling = {
        device.GPU_TEMP: np.rint(70 + 2 * hours[None] + noise),
        device.POWER_USAGE: steady(300.0),
        device.SLOWDOWN_TEMP: steady(87.0, 0),
    }
    load = {
        device.GPU_TEMP: np.rint(73 + 0.1 * (watts - 300) + noise),
        device.POWER_USAGE: watts,
        device.SLOWDOWN_TEMP: steady(87.0, 0),
    }
    assert figure(Feature.HOURS_TO_LIMIT, seen(cooling)) == pytest.approx(2.5, abs=0.6)
    assert causes(seen(cooling)) == [Cause.THERMAL]
    assert causes(seen(load)) == [Cause.LOAD]


def test_the_margin_of_new_gpus_counts_like_the_distance_to_the_slowdown_temperature() -> None:
    assert causes(seen({THERMAL_MARGIN: from_minute(100, 20, 0)})) == [Cause.THERMAL]
    assert causes(seen({THERMAL_MARGIN: from_minute(100, 20, 6)})) == []


def test_memory_that_grows_is_a_leak_and_a_cache_that_is_emptied_is_none() -> None:
    minutes = np.arange(LENGTH, dtype=np.float64)
    grows: Floats = 20_000 + 50.0 * minutes[None]
    cache: Floats = 20_000 + 50.0 * (minutes % 200)[None]
    assert figure(Feature.HOURS_TO_FULL, seen({device.FB_USED: grows, device.FB_FREE: 80_000 - grows})) == (
        pytest.approx((60_000 - 50 * 357) / 3000, rel=0.02)
    )
    assert causes(seen({device.FB_USED: grows, device.FB_FREE: 80_000 - grows})) == [Cause.MEMORY_LEAK]
    assert causes(seen({device.FB_USED: cache, device.FB_FREE: 80_000 - cache})) == []


def test_a_leak_after_a_restart_is_one() -> None:
    minutes = np.arange(LENGTH)
    used = np.where(minutes < 120, 70_000, 20_000 + 50.0 * (minutes - 120))[None]
    again: Ints = (minutes >= 120).astype(np.int64)[None]
    values = {device.FB_USED: used, device.FB_FREE: 80_000 - used}
    assert causes(seen(values)) == []
    assert causes(seen(values, process=again)) == [Cause.MEMORY_LEAK]


@pytest.mark.parametrize(
    ("metric", "before", "after", "cause"),
    [
        (device.ECC_DBE_VOLATILE, 0, 1, Cause.MEMORY_ERRORS),
        (device.ECC_SBE_VOLATILE, 0, 400, Cause.MEMORY_ERRORS),
        (device.UNCORRECTABLE_REMAPPED_ROWS, 3, 4, Cause.ROW_REMAPPING),
        (device.CORRECTABLE_REMAPPED_ROWS, 0, 1, Cause.ROW_REMAPPING),
        (device.ROW_REMAP_FAILURE, 0, 1, Cause.ROW_REMAPPING),
        (device.RETIRED_PENDING, 0, 1, Cause.ROW_REMAPPING),
        (device.PCIE_REPLAY, 5, 5000, Cause.PCIE_ERRORS),
        (nvlink.ERRORS, 0, 5000, Cause.NVLINK),
        (nvlink.UP, 18, 17, Cause.NVLINK),
        (device.XID_ERRORS, 0, 79, Cause.XID),
        (device.XID_ERRORS, 79, 48, Cause.MEMORY_ERRORS),
        (device.XID_ERRORS, 0, 74, Cause.NVLINK),
        (device.RECOVERY_ACTION, 0, 1, Cause.XID),
        (gpu.GPU_UP, 1, 0, Cause.TELEMETRY_LOST),
    ],
)
def test_a_change_of_a_fault_metric_has_its_cause_and_no_change_has_none(
    metric: Metric, before: float, after: float, cause: Cause
) -> None:
    assert causes(seen({metric: from_minute(LENGTH - 10, before, after)})) == [cause]
    assert causes(seen({metric: from_minute(LENGTH, before, after)})) == []


def test_a_counter_that_is_reset_has_not_increased() -> None:
    assert figure(Feature.DOUBLE_BIT_ERRORS, seen({device.ECC_DBE_VOLATILE: from_minute(LENGTH - 10, 7, 0)})) == 0


def test_an_xid_of_yesterday_is_none_of_today() -> None:
    assert figure(Feature.XID_CODE, seen({device.XID_ERRORS: steady(79.0, 0)})) == 0


def test_a_link_with_fewer_lanes_is_found_and_a_slow_one_of_an_idle_gpu_is_not() -> None:
    lanes = {device.PCIE_LINK_WIDTH: steady(8.0, 0), device.PCIE_MAX_LINK_WIDTH: steady(16.0, 0)}
    generation = {device.PCIE_LINK_GEN: steady(1.0, 0), device.PCIE_MAX_LINK_GEN: steady(5.0, 0)}
    assert causes(seen(lanes)) == [Cause.PCIE_LINK]
    assert causes(seen({**generation, device.GPU_UTIL: steady(0.0)})) == []
    assert causes(seen({**generation, device.GPU_UTIL: steady(80.0)})) == [Cause.PCIE_LINK]


def test_a_gpu_that_falls_silent_is_lost_only_while_its_node_goes_on() -> None:
    values = np.tile(steady(70.0), (4, 1))
    values[0, -6:] = np.nan  # of node 0, whose other GPU goes on
    values[2:, -6:] = np.nan  # all of node 1
    observed = seen({device.GPU_TEMP: values}, node=np.array([0, 0, 1, 1]))
    assert [causes(observed, row) for row in range(4)] == [[Cause.TELEMETRY_LOST], [], [], []]


def test_metrics_that_stall_while_the_others_of_the_node_go_on_are_lost() -> None:
    heat, errors = np.tile(steady(70.0), (2, 1)), np.zeros((2, LENGTH))
    errors[1, -8:] = np.nan
    observed = seen({device.GPU_TEMP: heat, device.ECC_SBE_VOLATILE: errors}, node=np.array([3, 3]))
    assert [causes(observed, row) for row in range(2)] == [[], [Cause.TELEMETRY_LOST]]


def slow_kernel() -> Floats:
    return from_minute(LENGTH - 6, 1e-3, 1.4e-3) * steady(1.0)


def test_a_slow_kernel_is_explained_by_what_happened_to_its_gpu() -> None:
    slow, full = {kernel.DURATION: slow_kernel()}, from_minute(LENGTH, 1980, 0)
    others = np.stack([from_minute(LENGTH - 6, 2e-3, 2.6e-3)[0], from_minute(LENGTH, 5e-3, 0)[0]])[None]
    programs = from_minute(LENGTH - 6, 1, 2)
    clocks = {device.SM_CLOCK: full, device.GPU_UTIL: steady(90.0)}

    assert figure(Feature.DURATION_RATIO, seen(slow)) == pytest.approx(1.4, rel=0.01)
    assert causes(seen(slow)) == [Cause.KERNEL_SLOWDOWN]
    assert causes(seen({**slow, **clocks}, programs=programs, siblings=others)) == [Cause.CONTENTION]
    assert causes(seen({**slow, **clocks}, programs=np.ones((1, LENGTH)))) == [Cause.AGEING]
    held = {device.SM_CLOCK: from_minute(LENGTH - 6, 1980, 1300), device.GPU_UTIL: steady(90.0)}
    assert causes(seen({**slow, **held}, programs=programs, siblings=others)) == [Cause.CLOCK_LOW]


def test_a_version_has_its_own_baseline_and_what_it_cost_is_a_finding_of_its_own() -> None:
    slower = from_minute(120, 1e-3, 1.25e-3) * steady(1.0)
    version: Ints = (np.arange(LENGTH) >= 120).astype(np.int64)[None]
    observed = seen({kernel.DURATION: slower}, version=version)

    assert figure(Feature.DURATION_RATIO, observed) == pytest.approx(1.0, rel=0.01)
    assert figure(Feature.DEPLOY_RATIO, observed) == pytest.approx(1.25, rel=0.01)
    assert causes(observed) == [Cause.DEPLOY]


def test_the_first_minutes_of_a_process_are_no_slowdown() -> None:
    again: Ints = (np.arange(LENGTH) >= LENGTH - 6).astype(np.int64)[None]
    assert reason(seen({kernel.DURATION: slow_kernel()}, process=again)) is Excuse.FIRST_MINUTES


def test_a_gpu_that_is_slow_from_its_first_minute_is_found_by_its_peers() -> None:
    durations = np.concatenate([1e-3 * steady(1.0) for _ in range(5)])
    durations[3] *= 1.3
    observed = seen(
        {kernel.DURATION: durations, device.SM_CLOCK: np.full((5, LENGTH), 1980.0)},
        group=np.zeros(5, np.int64),
        programs=np.ones((5, LENGTH)),
    )
    assert figure(Feature.DURATION_RATIO, observed, row=3) == pytest.approx(1.0, rel=0.01)
    assert [causes(observed, row) for row in range(5)] == [[], [], [], [Cause.AGEING], []]


def test_fewer_than_three_peers_are_no_reference() -> None:
    ratio, reference = peer_ratio(np.array([1.0, 1.0, 9.0]), PeerGroups.of(np.zeros(3, np.int64)))
    assert np.isnan(ratio).all()
    assert np.isnan(reference).all()


def test_short_histories_and_gaps_give_no_figure_instead_of_an_error() -> None:
    for length in (1, 2, 7):
        for values in (np.full((2, length), np.nan), np.ones((2, length))):
            every = dict.fromkeys((*device.ROWS, kernel.DURATION, gpu.GPU_UP, nvlink.UP, nvlink.ERRORS), values)
            numbers = np.zeros((2, length), np.int64)
            observed = seen(
                every, node=np.zeros(2, np.int64), programs=values, siblings=values[:, None], process=numbers,
                version=numbers, group=np.zeros(2, np.int64),
            )  # fmt: skip
            assert len(find(features(observed))) == 2
