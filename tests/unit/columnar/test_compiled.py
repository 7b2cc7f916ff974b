import threading
from typing import TYPE_CHECKING, cast

import numpy as np
from numba import njit
from numba.core.dispatcher import Dispatcher

from kernelcast.columnar import Decoder, Resource, Sample, encode
from kernelcast.columnar.compiled import routine
from kernelcast.columnar.walk import entries
from kernelcast.wire.catalogue import Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Callable


def signatures() -> dict[str, list[object]]:
    """The signatures that each entry was compiled for."""
    own = {name: value for name, value in vars(entries).items() if isinstance(value, Dispatcher)}
    return {name: list(each.signatures) for name, each in own.items() if each.py_func.__module__ == entries.__name__}


@routine
def successor(number: int) -> int:
    return number + 1


def test_a_routine_is_compiled_for_types_and_not_once_more_for_each_constant() -> None:
    def successors() -> tuple[int, int]:
        return successor(1), successor(2)

    # Without a file of machine code, which would bring the routine along.
    compiled = cast("Callable[[], tuple[int, int]]", njit(successors))
    assert compiled() == (2, 3)
    assert len(cast("Dispatcher", successor).signatures) == 1


def test_nothing_is_compiled_after_warm_up() -> None:
    Decoder.warm_up()
    before = signatures()
    decoder = Decoder()
    decoder.decode([b"\x0a\x00", b"\xff", b"\x0b\x0c"])
    decoder.forget(np.array([0], np.int32))
    assert signatures() == before
    assert {name: len(known) for name, known in before.items()} == dict.fromkeys(
        ("batch", "roll_back", "release", "compact", "relocate", "rehash", "group"), 1
    )


def test_decoders_of_several_threads_do_not_disturb_each_other() -> None:
    Decoder.warm_up()
    metric = Metric("m", Kind.GAUGE, "help", "m")
    resource = Resource((("service.instance.id", "i"), ("service.name", "s")))
    results: list[list[tuple[tuple[str, str], ...]]] = []

    def work(thread: int) -> None:
        decoder = Decoder()
        for time_ns in range(50):
            samples = [Sample(metric, (("gpu", f"{thread}-{gpu}"),), time_ns, gpu) for gpu in range(300)]
            numbers = decoder.decode([export.body for export in encode(resource, samples, scope="s")]).numbers
            if numbers.integer.tolist() == list(range(300)):
                results.append([decoder.identity(int(number)).attributes for number in numbers.series[:2]])

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == sorted([[(("gpu", f"{t}-0"),), (("gpu", f"{t}-1"),)] for t in range(4)] * 50)
