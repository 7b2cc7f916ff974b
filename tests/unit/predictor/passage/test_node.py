"""A series beside its node: what one GPU shows alone, and what all of them show."""

from dataclasses import replace

import numpy as np

from kernelcast.predictor.arrays import Floats
from kernelcast.predictor.passage.detector import Evaluation, evaluate
from kernelcast.predictor.passage.node import beside_node, node_medians
from kernelcast.predictor.passage.series import SeriesBlocks, Traits

_DAY = 288
_GPUS = 8


def jobs(blocks: int) -> Floats:
    """Load of a node whose jobs come and go, one to six hours each."""
    rng, load = np.random.default_rng(4), np.zeros(blocks)
    at = 0
    while at < blocks:
        length = int(rng.integers(12, 72))
        load[at : at + length] = rng.uniform(0.8, 1.0)
        at += length + int(rng.integers(6, 48))
    return load


def temperatures(blocks: int, worn: Floats | float = 0.0) -> Floats:
    """Eight GPUs under the jobs of their node; the first one has lost a share of its cooling."""
    rng = np.random.default_rng(5)
    heat = jobs(blocks) * rng.uniform(28.0, 32.0, (_GPUS, 1)) + rng.normal(0.0, 0.3, (_GPUS, blocks))
    heat[0] *= 1.0 + worn
    return np.asarray(42.0 + heat)


def leaking(blocks: int, lost: Floats | float) -> Floats:
    """Memory of eight ranks whose cache fills for five hours and is emptied; the first one leaks, MiB."""
    rng, place = np.random.default_rng(6), np.arange(blocks)
    used = 30_000.0 + 500.0 * (place % 60) + rng.integers(0, 3, (_GPUS, blocks))
    used[0] += lost
    return np.asarray(used)


def evaluated(values: Floats, limit: float, *, reserves: bool = False, nodes: int = 1) -> Evaluation:
    """Evaluate the GPUs, all of one node or each of one of its own."""
    rows = len(values)
    traits = Traits(
        limit=np.full(rows, limit),
        baseline_ratio=np.full(rows, np.nan),
        below=np.zeros(rows, np.bool_),
        resolution=np.full(rows, 2.0 if reserves else 1.0),
        settling_blocks=np.full(rows, 15),
        reserves=np.full(rows, reserves),
    )
    none, numbers = np.full(values.shape, np.nan), np.zeros(values.shape, np.int64)
    blocks = SeriesBlocks.of(values, values, none, numbers, numbers - 1, averaged=np.ones(rows, np.bool_))
    return evaluate(replace(blocks, node=node_medians(values, np.arange(rows) % nodes)), traits)


def grown(blocks: int, hours: float, total: float) -> Floats:
    """A line from 0 to a total over the last hours."""
    return np.asarray(total * np.clip(1.0 - (blocks - 1 - np.arange(blocks)) / (12 * hours), 0.0, None))


def test_a_fan_that_fails_under_jobs_is_seen_beside_the_node() -> None:
    values = temperatures(2 * _DAY, grown(2 * _DAY, 5.0, 0.4))
    probability = evaluated(values, 87.0).passage.probability[:, 3]
    assert probability[0] > 0.9
    assert probability[1:].max() < 0.05
    assert evaluated(values, 87.0, nodes=_GPUS).passage.probability[0, 3] < 0.8


def test_a_leak_under_a_cache_that_is_emptied_is_seen_on_its_first_day() -> None:
    values = leaking(90, grown(90, 4.0, 6_000.0))
    probability = evaluated(values, 67_500.0, reserves=True).passage.probability[:, 3]
    assert probability[0] > 0.9
    assert probability[1:].max() < 0.05


def test_wear_that_is_less_than_the_noise_of_hours_is_seen_over_two_days() -> None:
    rng, blocks = np.random.default_rng(8), 2 * _DAY
    wander = np.repeat(rng.normal(0.0, 0.5, (_GPUS, blocks // 12)), 12, axis=1)
    values = temperatures(blocks, grown(blocks, 46.0, 0.24)) + wander
    probability = evaluated(values, 83.5).passage.probability[:, 4]
    assert probability[0] > 0.8
    assert probability[1:].max() < 0.05


def test_on_a_day_hotter_than_the_one_before_a_gpu_is_no_cooler_than_it_is() -> None:
    """The usual high level of the node is below its present one."""
    blocks = 2 * _DAY
    rise = 6.0 * np.clip(np.arange(blocks) - (blocks - 24), 0, 12) / 12
    values = temperatures(blocks, grown(blocks, 6.0, 0.3)) + rise
    own, node = values[:1], node_medians(values, np.zeros(_GPUS, np.int64))[:1]
    alike, _ = beside_node(own, node, np.ones(1), np.zeros(1, np.bool_))
    assert np.nanmedian(alike[0, -6:]) >= np.median(own[0, -6:]) - 0.5


def test_what_all_gpus_of_a_node_show_is_left_to_their_own_past() -> None:
    values = temperatures(2 * _DAY) + grown(2 * _DAY, 5.0, 8.0)
    alone, together = (evaluated(values, 95.0, nodes=each) for each in (_GPUS, 1))
    np.testing.assert_allclose(together.passage.probability, alone.passage.probability, atol=1e-9)


def test_gpus_with_work_of_their_own_are_no_measure_of_each_other() -> None:
    rng = np.random.default_rng(9)
    values = np.stack([42.0 + 32.0 * np.roll(jobs(2 * _DAY), int(by)) for by in rng.integers(0, _DAY, _GPUS)])
    values += rng.normal(0.0, 0.3, values.shape)
    assert evaluated(values, 87.0).passage.probability.max() < 0.2


def test_a_median_needs_four_gpus_of_a_node_and_leaves_out_gaps() -> None:
    values = np.array([[1.0, 2.0], [2.0, np.nan], [4.0, 5.0], [9.0, 9.0], [9.0, 4.0], [7.0, 7.0]])
    found = node_medians(values, np.array([3, 3, 3, 3, 3, -1]))
    assert found[:5].tolist() == [[4.0, 4.5]] * 5
    assert np.isnan(found[5]).all()
    assert np.isnan(node_medians(values, np.array([1, 1, 1, 2, 2, 2]))).all()
    assert np.isnan(node_medians(values[:4], np.zeros(4, np.int64))[0, 1])
