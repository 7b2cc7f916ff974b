"""Groups: the objects that a program may pass as `group`."""

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from kernelcast.probe.ranks.group import TRIES, group_from
from kernelcast.wire.errors import TunableError


class Communicator:
    """A communicator like that of mpi4py, of a job with two ranks that send the same."""

    def Get_rank(self) -> int:  # noqa: N802  mpi4py's name
        return 0

    def allgather(self, sent: str) -> list[str]:
        return [sent, sent]


class Broadcasting:
    """An object with a broadcast, of the second of three ranks."""

    rank, size = 1, 3

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.errors: list[Exception] = []

    def broadcast(self, text: str, root: int) -> str:
        self.calls.append((text, root))
        if self.errors:
            raise self.errors.pop()
        return text if root == self.rank else f"of {root}"


def test_a_communicator_of_mpi4py_gathers() -> None:
    assert group_from(Communicator()).exchange("a") == ["a", "a"]


def test_a_process_group_of_pytorch_gathers_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    class ProcessGroup:
        pass

    def gather(found: list[Any], sent: Any, group: Any) -> None:
        assert isinstance(group, ProcessGroup)
        found[:] = [sent, f"{sent}!"]

    module = ModuleType("torch.distributed")
    for name, value in (
        ("ProcessGroup", ProcessGroup),
        ("get_world_size", lambda group: 2),
        ("all_gather_object", gather),
    ):
        setattr(module, name, value)
    monkeypatch.setitem(sys.modules, "torch.distributed", module)
    assert group_from(ProcessGroup()).exchange("a") == ["a", "a!"]


def test_broadcasts_from_each_rank_make_a_gather() -> None:
    given = Broadcasting()
    assert group_from(given).exchange("mine") == ["of 0", "mine", "of 2"]
    assert given.calls == [("", 0), ("mine", 1), ("", 2)]


def test_rank_and_size_may_be_integers_of_numpy() -> None:
    given = Broadcasting()
    given.rank, given.size = np.int64(given.rank), np.int32(given.size)  # type: ignore[assignment]
    assert group_from(given).exchange("mine") == ["of 0", "mine", "of 2"]
    given.size = "three"  # type: ignore[assignment]
    with pytest.raises(TunableError, match="with rank and size"):
        group_from(given)


def test_a_broadcast_that_failed_is_repeated_or_left_out_and_the_others_follow() -> None:
    given = Broadcasting()
    given.errors = [RuntimeError("before it communicated")]
    assert group_from(given).exchange("mine") == ["of 0", "mine", "of 2"]
    given.errors = [ConnectionResetError("in it")]
    assert group_from(given).exchange("mine") == ["", "mine", "of 2"]
    given.errors = [ConnectionResetError("gone")] * 3
    with pytest.raises(ConnectionResetError, match="gone"):
        group_from(given).exchange("mine")


def test_a_gather_that_fails_at_once_is_repeated_some_times() -> None:
    calls = []

    class Failing:
        def all_gather(self, text: str) -> list[str]:
            calls.append(text)
            raise RuntimeError("always")

    with pytest.raises(RuntimeError, match="always"):
        group_from(Failing()).exchange("a")
    assert calls == ["a"] * TRIES


def test_texts_of_another_type_are_empty() -> None:
    class Odd:
        def all_gather(self, text: str) -> list[Any]:
            return [text, None, 3]

    assert group_from(Odd()).exchange("a") == ["a", "", ""]


def test_another_object_is_refused_with_the_remedy() -> None:
    with pytest.raises(TunableError, match=r"needs an all-gather .* pass such an object"):
        group_from(object())
