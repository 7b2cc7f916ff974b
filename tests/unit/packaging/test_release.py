"""The parts of a release: wheels for platforms, chosen by KERNELCAST_WHEEL, and the checks on them."""

import pytest
from tests.support.packaging import load_build_hook

from release import wheels


@pytest.mark.parametrize(
    ("found", "promised", "fits"),
    [
        ("manylinux_2_17_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux_2_5_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux_2_36_x86_64", "manylinux_2_17_x86_64", False),
        ("manylinux_2_17_x86_64", "manylinux_2_17_aarch64", False),
        ("linux_x86_64", "manylinux_2_17_x86_64", False),
    ],
)
def test_a_tag_may_not_promise_an_older_c_library_than_is_needed(found: str, promised: str, fits: bool) -> None:  # noqa: FBT001
    assert wheels.at_most(found, promised) is fits


def test_the_build_hook_and_the_release_name_the_same_platforms() -> None:
    hook_module = load_build_hook()
    assert (hook_module.PLATFORMS, hook_module.PURE, hook_module.VARIABLE) == (
        wheels.PLATFORMS,
        wheels.PURE,
        wheels.VARIABLE,
    )
