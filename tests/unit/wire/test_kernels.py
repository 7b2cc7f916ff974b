import gzip
import json

import pytest
from tests.service.require import shared_data

from kernelcast.wire.kernels import kernel_class, kernel_id, label, normalise

MANGLED = "39_GLOBAL__N__{}_7_file_cu_{}"
"""A namespace that nvcc names after the source file; its length stands before it."""
MANGLED_NAMESPACE = MANGLED.format("1f2e3d4c", "aabbccdd")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("triton_poi_fused_add_mul_3", "triton_poi_fused_add_mul_17"),
        ("loop_add_fusion_12", "loop_add_fusion.3"),
        ("_GLOBAL__N__1f2e3d4c_7_file_cu_aabbccdd_99::f(int)", "_GLOBAL__N__00000000_7_file_cu_11223344_1::f(int)"),
        ("kernel_at 0x7f00deadbeef", "kernel_at 0x7f11deadbeef"),
        ("triton_poi__3", "triton_poi__4"),
        ("triton_red_fused__to_copy_mean_0", "triton_red_fused__to_copy_mean_1"),
        (
            f"_ZN2at6native{MANGLED.format('1f2e3d4c', 'aabbccdd')}5reluEPf",
            f"_ZN2at6native{MANGLED.format('0' * 8, '1' * 8)}5reluEPf",
        ),
    ],
)
def test_what_changes_from_build_to_build_is_no_part_of_the_identity(first: str, second: str) -> None:
    assert normalise(first) == normalise(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x128_nn"),
        ("void f<float, 4>(int)", "void f<float, 8>(int)"),
        ("cupy_add__float32_float32_float32", "cupy_add__float64_float64_float64"),
        ("gemm_k1", "gemm_k2"),
        ("triton_poi_fused_add_3", "triton_poi_fused_mul_3"),
        ("triton_matmul_128_64", "triton_matmul_64_64"),
        (f"_ZN2at6native{MANGLED_NAMESPACE}5softmaxEPf", f"_ZN2at6native{MANGLED_NAMESPACE}4reluEPf"),
        (f"_ZN3c10{MANGLED_NAMESPACE}5softmaxEPf", f"_ZN3c10{MANGLED_NAMESPACE}4reluEPf"),
    ],
)
def test_kernels_that_differ_keep_their_own_identity(first: str, second: str) -> None:
    assert normalise(first) != normalise(second)
    assert kernel_id(normalise(first)) != kernel_id(normalise(second))


def test_a_label_is_readable_short_and_distinguishes_equal_prefixes() -> None:
    first, second = ("void " + "n" * 100 + end for end in ("a", "b"))
    assert label(first)[:80] == label(second)[:80] == "n" * 80
    assert label(first) != label(second)
    assert len(label(first)) == 80 + 1 + 8


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "collective"),
        ("ncclDevKernel_AllGather_RING_LL", "collective"),
        ("void at::native::direct_copy_kernel_cuda(…)", "memory"),
        ("ampere_sgemm_128x64_nn", "compute"),
    ],
)
def test_collectives_and_data_movement_are_classes_of_their_own(name: str, expected: str) -> None:
    assert kernel_class(name) == expected


@pytest.mark.slow
def test_no_two_kernels_of_a_real_job_share_a_label() -> None:
    with gzip.open(shared_data("kineto", "control.json.gz")) as file:
        events = json.load(file)["traceEvents"]
    names = {event["name"] for event in events if event.get("cat") == "kernel"}
    assert len({label(normalise(name)) for name in names}) == len(names) == 170
