"""Classes of kernels that wait for peers: a table of names, in both directions, and all names of the recordings."""

import pytest
from tests.support.wire.kernel_names import COLLECTIVE_NAMES, OTHER_NAMES, has_collective_word, recorded_names

from kernelcast.wire.kernels import (
    COLLECTIVE,
    COLLECTIVE_RULES,
    LOCAL_RULES,
    OTHER,
    OTHER_COLLECTIVES,
    kernel_class,
    kernel_id,
    label,
    normalise,
)


@pytest.mark.parametrize("name", COLLECTIVE_NAMES)
def test_a_kernel_that_waits_for_peers_is_a_collective(name: str) -> None:
    assert kernel_class(name) == COLLECTIVE
    assert name.startswith("_Z") or kernel_class(normalise(name)) == COLLECTIVE


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_a_kernel_of_one_gpu_is_no_collective(name: str) -> None:
    assert COLLECTIVE not in (kernel_class(name), kernel_class(normalise(name)))


@pytest.mark.slow
def test_recorded_collectives_are_those_with_a_word_of_collectives_and_one_more() -> None:
    names = recorded_names()
    assert len(names) > 290
    changed = {name for name in names if has_collective_word(name) != (kernel_class(normalise(name)) == COLLECTIVE)}
    assert {normalise(name).partition("<")[0] for name in changed} <= {
        "void (anonymous namespace)::multimem_all_reduce_kernel"
    }


def test_each_word_of_collectives_makes_one() -> None:
    words = ("nccl", "rccl", "msccl", "nvshmem", "oneshot_allreduce", "twoshot_allreduce", "cross_device_reduce")
    assert {kernel_class(f"void a::{word.upper()}_kernel()") for word in words} == {COLLECTIVE}


def test_rules_are_pairs_of_plain_words() -> None:
    for first, second in (*COLLECTIVE_RULES, *LOCAL_RULES):
        assert first
        assert not set("_|&!ABCDEFGHIJKLMNOPQRSTUVWXYZ") & set(first + second)


def test_kernels_without_room_keep_their_class() -> None:
    assert (kernel_class(OTHER), kernel_class(OTHER_COLLECTIVES)) == ("compute", COLLECTIVE)


def test_a_name_made_to_last_long_is_judged_in_no_time() -> None:
    assert kernel_class("1_GLOBAL__N_" * 20_000) == "compute"


def test_identity_and_label_do_not_depend_on_the_class() -> None:
    signature = normalise("void deep_ep::intranode::dispatch<(int)2>(int4*)")
    assert kernel_id(signature) == 16_445_381_992_145_592_151
    assert label(signature) == "deep_ep::intranode::dispatch<(int)2>(int4*)#e439bbca"
