"""Groups of ranks: one operation, `exchange`, over whatever a program uses to let its ranks communicate.

Recognised without an import of any library: process groups of `torch.distributed`, communicators of mpi4py, and any
object with an all-gather or a broadcast.
"""

import contextlib
import sys
from collections.abc import Callable
from functools import partial
from operator import index
from time import monotonic
from typing import Any, Final

from kernelcast.wire.errors import TunableError

ALL_GATHERS: Final = ("all_gather", "allgather", "all_gather_object")
BROADCASTS: Final = ("broadcast", "bcast")
RANKS: Final = ("rank", "Get_rank", "get_rank")
SIZES: Final = ("size", "Get_size", "get_size", "world_size")
# Calls of the program's function, which may fail a few times before it has communicated.
TRIES: Final = 4
# After a later error the ranks have waited for each other and gone on, so the call is not repeated.
QUICK_SECONDS: Final = 1.0
COMMUNICATION_ERRORS: Final = (OSError, EOFError)

Exchange = Callable[[str], list[str]]


class RankGroup:
    """Lets each rank give a text and get the texts of all ranks, in the order of the ranks.

    A `Council` calls it on the program's thread; it blocks until all ranks have called it.

    Args:
        exchange: The program's operation. All ranks call it equally often.
        name: Name of the program's object, for people.
        repeatable: Whether an error can come from the program's own code before anything was exchanged: then the
            call is repeated at once, because the other ranks wait in it.
    """

    def __init__(self, exchange: Exchange, name: str, *, repeatable: bool) -> None:
        self._exchange = exchange
        self._repeatable = repeatable
        self.name = name

    def exchange(self, text: str) -> list[str]:
        """Give a text, and return those of all ranks; texts that are no strings become empty.

        Raises:
            Exception: The error of the program's group, after repeated calls.
        """
        found = repeated(lambda: self._exchange(text), tries=TRIES if self._repeatable else 1)
        return [one if isinstance(one, str) else "" for one in found]


def repeated(call: Callable[[], Any], *, tries: int = TRIES) -> Any:
    """Call a function of the program that all ranks call, again if it fails at once.

    A rank whose call fails before it has communicated is missing in it: the others wait. An error of communication, or
    one that comes late, is raised at once.
    """
    for left in range(tries - 1, -1, -1):
        began = monotonic()
        try:
            return call()
        except COMMUNICATION_ERRORS:
            raise
        except Exception:
            if not left or monotonic() - began > QUICK_SECONDS:
                raise
    raise AssertionError("unreachable")


def group_from(given: Any) -> RankGroup:
    """Make a group from an object of the program.

    Args:
        given: A process group of `torch.distributed`; a communicator of mpi4py; an object with `all_gather(text)` (or
            `allgather`) that returns the texts of all ranks in order; or one with `broadcast(text, root)` (or `bcast`),
            a rank and a size.

    Raises:
        TunableError: It has none of these.
    """
    torch = sys.modules.get("torch.distributed")
    process_group = getattr(torch, "ProcessGroup", None)
    if torch is not None and isinstance(process_group, type) and isinstance(given, process_group):
        return RankGroup(_of_torch(torch, given), "torch.distributed", repeatable=False)
    own_code = not type(given).__module__.startswith("mpi4py")
    name = type(given).__name__
    if gather := _method(given, ALL_GATHERS):
        return RankGroup(lambda text: list(gather(text)), name, repeatable=own_code)
    if broadcast := _method(given, BROADCASTS):
        rank, size = _number(given, RANKS), _number(given, SIZES)
        if rank is not None and size is not None:
            return RankGroup(_of_broadcast(broadcast, rank, size, TRIES if own_code else 1), name, repeatable=False)
    raise TunableError(
        f"group is {given!r}; it needs an all-gather (one of {', '.join(ALL_GATHERS)}), or a broadcast "
        f"({', '.join(BROADCASTS)}) with rank and size; pass such an object"
    )


def _of_torch(torch: Any, group: Any) -> Exchange:
    def exchange(text: str) -> list[str]:
        texts: list[Any] = [None] * torch.get_world_size(group)
        torch.all_gather_object(texts, text, group=group)
        return texts

    return exchange


def _of_broadcast(broadcast: Callable[..., Any], rank: int, size: int, tries: int) -> Exchange:
    """Gather by one broadcast from each rank.

    A rank at which one of them fails takes part in the others, as its peers do.
    """

    def exchange(text: str) -> list[str]:
        texts: list[str] = []
        errors: list[Exception] = []
        for root in range(size):
            began = monotonic()
            try:
                texts.append(repeated(partial(broadcast, text if root == rank else "", root), tries=tries))
            except Exception as error:
                errors.append(error)
                if len(errors) == size or monotonic() - began > QUICK_SECONDS:
                    raise
                texts.append("")
        return texts

    return exchange


def _method(given: Any, names: tuple[str, ...]) -> Callable[..., Any] | None:
    found = (getattr(given, name, None) for name in names)
    return next((one for one in found if callable(one)), None)


def _number(given: Any, names: tuple[str, ...]) -> int | None:
    for name in names:
        found = getattr(given, name, None)
        value: Any = found() if callable(found) else found
        if not isinstance(value, bool):
            with contextlib.suppress(TypeError):
                return index(value)  # an integer of numpy, too
    return None
