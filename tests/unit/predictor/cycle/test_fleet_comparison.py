"""GPUs that are slower than the other nodes: simulated nodes in, findings and shared baselines out, in event time."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.predictor.fleet.baselines import Gpu, Predictor, exchange, fleet, slow_gpus

from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingState, Severity

SLOW = ("n0", "n0-GPU-0")
HOUR_AND_MORE = 15
"""Blocks after which a slow GPU is found: three of the first minutes, nine that count, and the exchange."""


def run(gpus: list[Gpu], seed: int = 1, blocks: int = HOUR_AND_MORE) -> tuple[Predictor, list[Finding]]:
    """Run one predictor that reads the whole fleet; returns the findings that other nodes show, in any block."""
    predictor = Predictor(gpus, seed)
    found = []
    for _ in range(blocks):
        found += [one for one in predictor.run(1)[0] if any(fact.peers for fact in one.evidence)]
        exchange([predictor])
    return predictor, found


def report_version(predictor: Predictor, gpu: Gpu, version: str, **tunables: str) -> None:
    """A program's report of its version and of the values of its tunables."""
    for name, value in (tunables or {"block": "128"}).items():
        words = gpu.labels | {"program": gpu.program, "code_version": version, "tunable": name, "value": value}
        predictor.engine.tunables.observe(tuple(sorted(words.items())), time_ns=1, owner=0, now_ns=predictor.now_ns)


def test_a_gpu_that_was_slow_from_its_first_minute_is_named_with_its_fleet_as_evidence() -> None:
    _, found = run(fleet(6, slow=1.2))

    assert slow_gpus(found) == {SLOW}
    last = found[-1]
    assert (last.cause, last.severity, last.state) == (Cause.AGEING, Severity.TICKET, FindingState.OBSERVED)
    fact = last.evidence[0]
    assert (fact.metric, fact.against, fact.peers, fact.code_version) == (
        "cuda_kernel_duration_seconds", "peers", 5, ""
    )  # fmt: skip
    assert (fact.value or 0) / (fact.reference or 1) == pytest.approx(1.2, abs=0.06)
    assert dict(fact.labels)["UUID"] == SLOW[1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(11, 14))
def test_healthy_fleets_have_no_finding(seed: int) -> None:
    predictor, found = run(fleet(6, 2), seed)
    assert found == []
    assert predictor.engine.cycle.fleet.compared == 48


@pytest.mark.parametrize("nodes", [2, 3])
def test_with_fewer_than_three_other_nodes_nothing_is_compared(nodes: int) -> None:
    predictor, found = run(fleet(nodes, slow=2.0))
    assert found == []
    assert predictor.engine.cycle.fleet.compared == 0
    assert len(predictor.shared) == 4


def other_model(gpu: Gpu) -> Gpu:
    return replace(gpu, model="NVIDIA A100-SXM4-80GB")


def other_configuration(gpu: Gpu) -> Gpu:
    return replace(gpu, kernels=tuple((name, f"{variant}|fp32", seconds) for name, variant, seconds in gpu.kernels))


def without_model(gpu: Gpu) -> Gpu:
    return replace(gpu, model="")


def capped(gpu: Gpu) -> Gpu:
    return replace(gpu, clock_mhz=1500.0, reasons=0x4)


def warming_up(gpu: Gpu) -> Gpu:
    return replace(gpu, born_block=HOUR_AND_MORE - 10)


def other_work(gpu: Gpu) -> Gpu:
    own = tuple((f"own{number}#0{number}", "1x1x1|64x1x1", 1e-3) for number in range(5))
    return replace(gpu, kernels=(*gpu.kernels[:1], *own))


@pytest.mark.slow
def test_gpus_that_do_other_work_or_are_capped_are_not_named() -> None:
    changes = (other_model, other_configuration, without_model, capped, warming_up, other_work)
    slow = [replace(change(gpu), factor=1.4) for change, gpu in zip(changes, fleet(12)[6:], strict=True)]
    assert run([*fleet(6), *slow])[1] == []


@pytest.mark.slow
def test_a_gpu_that_is_held_back_has_that_cause_and_one_finding() -> None:
    held_back = {"n6": (0x40, Cause.THERMAL), "n7": (0x80, Cause.POWER_BRAKE), "n8": (0, Cause.CLOCK_LOW)}
    slow = [
        replace(gpu, factor=1.3, clock_mhz=1500.0, reasons=held_back[gpu.node][0])
        for gpu in fleet(9)
        if gpu.node in held_back
    ]
    predictor, found = run([*fleet(6), *slow], blocks=HOUR_AND_MORE + 3)
    expected = {node: cause for node, (_, cause) in held_back.items()}
    assert {dict(one.labels)["Hostname"]: one.cause for one in found} == expected
    alarms = Alarms(AlarmSettings())
    for number, candidates in enumerate(predictor.found):
        alarms.step(candidates, watched=24, time_ns=(number + 1) * 300 * 10**9)
    lasting = [(dict(one.labels)["Hostname"], one.cause) for one in alarms.lasting]
    assert sorted(lasting) == sorted(expected.items())


@pytest.mark.slow
def test_a_release_that_is_slower_names_no_gpu() -> None:
    gpus = [replace(one, program="serve", factor=1.3 if one.node in ("n0", "n1", "n2") else 1.0) for one in fleet(6)]
    predictor = Predictor(gpus, 3)
    for _ in range(HOUR_AND_MORE):
        for gpu in gpus:
            report_version(predictor, gpu, "v2" if gpu.factor > 1 else "v1")
        (found,) = predictor.run(1)
        assert slow_gpus(found) == set()
        exchange([predictor])
    selector = 'cuda_kernel_duration_seconds{Hostname="n0",kernel="gemm#01"}'
    found_fleet = predictor.engine.explain(selector)[0]["fleet"]
    assert found_fleet["code_version"] == "v2"
    assert found_fleet["reason"] == "fewer than three other nodes run it"


@pytest.mark.slow
def test_another_value_of_a_tunable_is_another_configuration() -> None:
    gpus = fleet(6, slow=1.3)
    predictor = Predictor(gpus, 3)
    for _ in range(HOUR_AND_MORE):
        for gpu in gpus:
            report_version(predictor, gpu, "v1", tile="64" if gpu.factor > 1 else "128")
        assert slow_gpus(predictor.run(1)[0]) == set()
        exchange([predictor])


@pytest.mark.slow
@pytest.mark.parametrize(("heavier", "named"), [((6, 7), set()), ((6,), {("n6", "n6-GPU-0")})])
def test_several_ranks_that_are_slow_in_the_same_kernels_have_a_heavier_stage(
    heavier: tuple[int, ...], named: set[tuple[str, str]]
) -> None:
    gpus = [
        replace(one, program="train", rank=str(number), factor=1.3 if number in heavier else 1.0)
        if number >= 5
        else one
        for number, one in enumerate(fleet(8))
    ]
    assert slow_gpus(run(gpus)[1]) == named


@pytest.mark.slow
def test_two_predictors_find_together_what_one_cannot() -> None:
    gpus = fleet(6, slow=1.3)
    halves = [Predictor(gpus[:3], 1), Predictor(gpus[3:], 2)]
    for _ in range(HOUR_AND_MORE):
        found = [slow_gpus(each.run(1)[0]) for each in halves]
        exchange(halves)
    assert found == [{SLOW}, set()]
    alone = run(gpus[:3])[1]
    assert alone == []


@pytest.mark.slow
def test_the_order_of_arrival_does_not_matter() -> None:
    gpus, rng = fleet(6, slow=1.3), random.Random(1)

    def shuffled(records: list[Any]) -> list[Any]:
        return rng.sample(records, len(records))

    kept = []
    for order in (list, shuffled):
        thirds = [Predictor(gpus[begin : begin + 2], begin) for begin in (0, 2, 4)]
        for _ in range(HOUR_AND_MORE):
            found = [slow_gpus(each.run(1)[0]) for each in thirds]
            exchange(thirds, order)
        while exchange(thirds, order):
            pass
        assert found == [{SLOW}, set(), set()]
        kept.append([each.shared.known(each.shared._known) for each in thirds])
    assert kept[0] == kept[1]
    assert kept[0][0] == kept[0][1] == kept[0][2]


@pytest.mark.slow
def test_a_restarted_predictor_knows_the_fleet_and_writes_nothing_again() -> None:
    gpus = fleet(6, slow=1.3)
    before, _ = run(gpus)
    topic = before.shared.known(before.shared._known)
    after = Predictor(gpus, 1)
    for key, one in topic.items():
        after.shared.learn(key, one, now_ns=before.now_ns)
    assert after.shared.take_due(before.now_ns) == []
    after.run(13)
    assert slow_gpus(after.found[-1]) == {SLOW}


@pytest.mark.slow
def test_nothing_is_compared_or_written_before_the_topic_has_been_read() -> None:
    predictor = Predictor(fleet(6, slow=1.3), 1)
    predictor.shared.caught_up = False
    predictor.run(HOUR_AND_MORE)
    assert slow_gpus(predictor.found[-1]) == set()
    assert predictor.shared.take_due(predictor.now_ns) == []


@pytest.mark.slow
def test_explain_shows_the_reference_or_why_there_is_none() -> None:
    predictor = Predictor(fleet(6, slow=1.3), 1)
    predictor.run(8)
    selector = 'cuda_kernel_duration_seconds{Hostname="n0",kernel="gemm#01"}'
    assert "less than an hour" in predictor.engine.explain(selector)[0]["fleet"]["reason"]
    predictor.run(6)
    (found,) = predictor.engine.explain(selector)
    assert found["fleet"]["compared"]
    assert found["fleet"]["slow"]
    assert found["fleet"]["fleet_nodes"] == 5
    assert found["fleet"]["fleet_seconds"] == pytest.approx(1e-3, rel=0.05)


def test_a_mig_instance_that_was_created_again_with_another_profile_has_the_new_model() -> None:
    predictor = Predictor(fleet(4), 1)
    predictor.run(HOUR_AND_MORE)
    labels = predictor.gpus[0].labels | {"modelName": predictor.gpus[0].model, "GPU_I_PROFILE": "1g.10gb"}
    again = Subject("DCGM_FI_DEV_GPU_TEMP", Form.LEVEL, tuple(sorted(labels.items())))
    windows = predictor.engine.windows
    rows, now_ns = np.array([windows.admit(again, owner=0)]), predictor.now_ns + 10**10
    windows.put_levels(rows, np.array([now_ns]), np.array([60.0]), now_seconds=now_ns / 1e9)
    predictor.engine.cycle.fleet._block = None
    predictor.engine.run_cycle()
    (found, *_) = predictor.engine.explain('cuda_kernel_duration_seconds{Hostname="n0",kernel="gemm#01"}')
    assert "1g.10gb" in found["fleet"]["kernel_baseline"]
