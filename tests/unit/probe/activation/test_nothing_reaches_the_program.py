"""An error in a callback of the probe does not affect the program's call that runs it."""

import errno
import importlib.util
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support.waiting import wait_for

from kernelcast import probe
from kernelcast.probe.activation import context_waiter
from kernelcast.probe.activation.context_waiter import ContextWaiter
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.process import driver
from kernelcast.probe.process.imports import ImportWatch
from kernelcast.probe.recording import nvtx
from kernelcast.probe.recording.regions import region


class NoThreads(RuntimeError):  # noqa: N818  as CPython says it
    pass


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise NoThreads("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Callable[[], None]]]:
    """PyTorch's list of calls when it initialises CUDA; their exceptions reach the program."""
    queued: list[Callable[[], None]] = []
    module = ModuleType("torch")
    module.__dict__["cuda"] = ModuleType("torch.cuda")
    module.__dict__["cuda"].__dict__["_lazy_call"] = queued.append
    monkeypatch.setitem(sys.modules, "torch", module)
    return iter([queued])


@pytest.mark.usefixtures("no_threads")
def test_a_thread_that_cannot_start_within_torchs_initialisation_is_no_error_of_torchs(
    torch: Iterator[list[Callable[[], None]]],
) -> None:
    queued = next(torch)
    waiter = ContextWaiter(lambda: None, lambda: ())
    waiter.start()
    queued[0]()
    assert not waiter.is_polling


def test_a_probe_whose_failure_cannot_even_be_logged_costs_the_program_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    def broken(name: str) -> Callable[..., None]:
        def fail(*_arguments: Any) -> None:
            attempts.append(name)
            raise OSError("the log's disk is full")

        return fail

    monkeypatch.setattr(context_waiter, "_warn", broken("warn"))
    waiter = ContextWaiter(broken("begin"), lambda: ())
    monkeypatch.setattr(waiter._watch, "stop", broken("stop"))
    waiter.context_found()
    assert attempts == ["stop", "warn", "begin", "warn"]


def test_an_import_succeeds_although_the_watch_cannot_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched_to_the_end.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    watch = ImportWatch({"watched_to_the_end": lambda _module: None})
    watch.start()

    def broken() -> None:
        raise ValueError("list.remove(x): x not in list")  # another thread was quicker

    monkeypatch.setattr(watch, "stop", broken)
    import watched_to_the_end  # type: ignore[import-not-found]

    assert watched_to_the_end.value == 5
    sys.meta_path.remove(watch)
    del sys.modules["watched_to_the_end"]


def test_an_import_succeeds_although_two_watches_wait_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watched_twice.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[str] = []
    for name in ("first", "second"):
        ImportWatch({"watched_twice": lambda _module, name=name: seen.append(name)}).start()  # type: ignore[misc]
    import watched_twice  # type: ignore[import-not-found]

    assert watched_twice.value == 5
    assert sorted(seen) == ["first", "second"]
    assert type(watched_twice.__loader__).__name__ == "SourceFileLoader"
    del sys.modules["watched_twice"]


def test_a_module_is_found_although_a_watch_ends_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread stops the watch while this one asks the finders in turn."""
    (tmp_path / "found_meanwhile.py").write_text("value = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    watch = ImportWatch({"there_is_no_such_module": lambda _module: None})

    class Moment:
        @staticmethod
        def find_spec(_fullname: str, _path: object, _target: object = None) -> None:
            watch.stop()

    finders = [finder for finder in sys.meta_path if finder is not PathFinder]
    monkeypatch.setattr(sys, "meta_path", [*finders, Moment, PathFinder])
    watch.start()
    import found_meanwhile  # type: ignore[import-not-found]

    assert found_meanwhile.value == 5
    del sys.modules["found_meanwhile"]


def test_what_a_program_does_with_its_list_of_finders_counts_although_a_watch_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`stop` put another list in place of it: the program's removal of a finder had no effect."""
    finders: Any = [finder for finder in sys.meta_path if not isinstance(finder, ImportWatch)]
    monkeypatch.setattr(sys, "meta_path", finders)
    number = len(finders)
    for _ in range(3):
        watch = ImportWatch({"there_is_no_such_module": lambda _module: None})
        watch.start()
        watch.stop()
    assert sys.meta_path is finders
    assert len(finders) == number + 1, "the next watch takes the place of one that has ended"


def test_a_watch_sees_what_a_finder_finds_that_the_program_put_in_front_of_an_ended_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second watch took the place of the first, behind the program's finder."""
    (tmp_path / "found_in_front.py").write_text("value = 5\n")

    class Front:
        @staticmethod
        def find_spec(fullname: str, _path: object, _target: object = None) -> Any:
            return PathFinder.find_spec(fullname, [str(tmp_path)])

    finders: Any = [finder for finder in sys.meta_path if not isinstance(finder, ImportWatch)]
    monkeypatch.setattr(sys, "meta_path", finders)
    seen: list[int] = []
    for _ in range(3):
        first, second = (ImportWatch({"found_in_front": lambda module: seen.append(module.value)}) for _ in "ab")
        first.start()
        second.start()
        first.stop()
        second.stop()
    number = len(finders)
    assert sum(isinstance(finder, ImportWatch) for finder in finders) == 2
    finders.insert(0, Front)
    watch = ImportWatch({"found_in_front": lambda module: seen.append(module.value)})
    watch.start()
    import found_in_front  # type: ignore[import-not-found]

    del sys.modules["found_in_front"]
    assert found_in_front.value == 5
    assert seen == [5]
    assert len(finders) == number + 2


def test_a_module_whose_spec_takes_no_other_loader_is_imported_unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fixed:
        """A finder's own spec, which does not let its loader be replaced."""

        name = "with_a_fixed_spec"
        loader = property(lambda _self: importlib.util.find_spec("json").loader)  # type: ignore[union-attr]

    class Finder:
        @staticmethod
        def find_spec(fullname: str, _path: object, _target: object = None) -> Any:
            return Fixed() if fullname == Fixed.name else None

    watch = ImportWatch({Fixed.name: lambda _module: None})
    monkeypatch.setattr(sys, "meta_path", [watch, Finder, *sys.meta_path])
    assert isinstance(watch.find_spec(Fixed.name, None), Fixed)


def test_a_program_without_free_file_descriptors_starts_the_probe_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", full)
    running = probe.start("training", socket_path=str(tmp_path / "none.sock"), source="simulated")
    try:
        running.observe("k", 5)
        running.step()
    finally:
        probe.stop()
    assert (running.steps, running.connected) == (1, False)


def test_a_step_goes_on_although_the_programs_logging_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = Probe(ProbeSettings("training", socket_path=str(tmp_path / "none.sock")), {})

    def fail(*_arguments: object, **_named: object) -> None:
        raise ZeroDivisionError

    log = logging.getLogger("kernelcast.probe")
    monkeypatch.setattr(log, "filters", [fail])
    monkeypatch.setattr(running._receiver, "at_boundary", fail)
    running.step()
    running.abandon()
    assert running._sender.failures == 1


def blocked() -> set[int]:
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())}


def test_no_thread_of_the_probe_receives_a_signal_that_the_program_waits_for(tmp_path: Path) -> None:
    """A program blocks a signal later, and waits for it by `sigwait`."""
    before = blocked()
    seen: list[set[int]] = []
    sent = Probe(
        ProbeSettings("training", socket_path=str(tmp_path / "none")), {}, each_interval=lambda: seen.append(blocked())
    )
    sent.start()

    def contexts() -> tuple[int, ...]:
        seen.append(blocked())
        return (0,)

    waiter = ContextWaiter(lambda: None, contexts)
    waiter._start_polling()
    assert wait_for(lambda: len(seen) >= 2 and not waiter.is_polling)
    sent.stop()
    for mask in seen:
        assert {signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGCHLD} <= mask
        assert not mask & {signal.SIGSEGV, signal.SIGSYS}
    assert blocked() == before


class Unprintable:
    """A range's name that is none; NVTX itself would refuse it, or not."""

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        raise ValueError("no text")


def test_a_range_whose_name_has_no_text_is_pushed_as_without_us() -> None:
    pushed: list[Any] = []
    module: Any = ModuleType("torch.cuda.nvtx")
    module.range_push, module.range_pop = pushed.append, pushed.pop
    nvtx._wrap_torch(module)
    message = Unprintable()
    module.range_push(message)
    assert pushed == [message]
    module.range_pop()
    assert pushed == []


def test_a_region_with_any_object_as_its_name_never_raises() -> None:
    ran = []
    with region(Unprintable()), region(["a", "list"]):  # type: ignore[arg-type]
        ran.append("the program's own lines")
    assert ran


@pytest.mark.parametrize(("present", "asks_on"), [(False, False), (True, True)])
def test_a_program_on_a_machine_without_a_driver_is_not_polled_for_ever(
    monkeypatch: pytest.MonkeyPatch,
    present: bool,  # noqa: FBT001
    asks_on: bool,  # noqa: FBT001
) -> None:
    asked: list[int] = []
    monkeypatch.setitem(sys.modules, "jaxlib", ModuleType("jaxlib"))
    waiter = ContextWaiter(lambda: None, lambda: (asked.append(1), ())[1], lambda: present)  # type: ignore[func-returns-value]
    waiter.start()
    assert wait_for(lambda: len(asked) >= 1)
    if asks_on:
        assert wait_for(lambda: len(asked) >= 2)
        assert waiter.is_polling
        waiter.stop()
    assert wait_for(lambda: not waiter.is_polling)
    assert asks_on or len(asked) == 1


@pytest.mark.parametrize("broken", ["contexts", "driver_exists"])
def test_a_query_that_fails_ends_the_thread_with_one_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    def fail() -> Any:
        raise ValueError("a driver of another kind")

    tracebacks: list[object] = []
    monkeypatch.setattr(threading, "excepthook", tracebacks.append)
    monkeypatch.setitem(sys.modules, "jaxlib", ModuleType("jaxlib"))
    contexts = fail if broken == "contexts" else lambda: ()
    waiter = ContextWaiter(lambda: None, contexts, fail)
    waiter.start()
    assert wait_for(lambda: not waiter.is_polling)
    assert wait_for(lambda: len(caplog.messages) > 0 or len(tracebacks) > 0)
    assert tracebacks == []
    assert "a driver of another kind" in caplog.text


def test_a_driver_can_be_there_as_a_library_in_any_place_of_the_linkers_or_as_a_device(tmp_path: Path) -> None:
    cache, library = tmp_path / "ld.so.cache", tmp_path / "lib"
    library.mkdir()
    places = driver.DriverPaths(devices=(str(tmp_path / "nvidiactl"),), cache=str(cache), folders=(str(library),))

    def there(**environ: str) -> bool:
        return driver.may_be_loaded(environ, places, mapped=lambda: False)

    assert not there()
    cache.write_bytes(b"\x00libc.so.6\x00/lib/libc.so.6\x00")
    assert not there(LD_LIBRARY_PATH="/nowhere:")
    cache.write_bytes(b"\x00libcuda.so.1\x00/usr/lib/libcuda.so.1\x00")
    assert there()
    cache.unlink()
    (library / "libcuda.so.1").touch()
    assert there()
    (library / "libcuda.so.1").rename(tmp_path / "libcuda.so.1")
    assert there(LD_LIBRARY_PATH=f"/nowhere:{tmp_path}")
    (tmp_path / "nvidiactl").touch()
    assert there()
    (tmp_path / "nvidiactl").unlink()
    assert driver.may_be_loaded({}, places, mapped=lambda: True)
