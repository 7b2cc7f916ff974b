"""The probe switched on from outside: command, environment, the wait for a context."""

import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from tests.support.probe.cupy_double import installed
from tests.support.waiting import wait_for

from kernelcast.probe import command
from kernelcast.probe.activation import context_waiter
from kernelcast.probe.activation.context_waiter import ContextWaiter, FirstModuleWatch
from kernelcast.probe.marks.process import ProcessMarks
from kernelcast.probe.preload import door
from kernelcast.probe.process.imports import ImportWatch
from kernelcast.probe.switch import SWITCH


class Become(Exception):  # noqa: N818  no error, but the end of this process's part
    def __init__(self, file: str, arguments: list[str], environ: dict[str, str]) -> None:
        self.file, self.arguments, self.environ = file, arguments, environ


def become(file: str, arguments: list[str], environ: dict[str, str]) -> NoReturn:
    raise Become(file, arguments, environ)


def test_the_command_becomes_the_program_with_its_options_in_the_environment() -> None:
    options = "--program resnet --rank 3 --socket /s --interval 0.5 --method event --standalone --nvtx --hints off"
    with pytest.raises(Become) as caught:
        command.main([*options.split(), "--", "python", "train.py", "--epochs", "3"], execute=become)
    assert caught.value.arguments == ["python", "train.py", "--epochs", "3"]
    expected = {
        "KERNELCAST_PROBE": "1",
        "KERNELCAST_PROGRAM": "resnet",
        "KERNELCAST_RANK": "3",
        "KERNELCAST_SOCKET": "/s",
        "KERNELCAST_PROBE_INTERVAL_SECONDS": "0.5",
        "KERNELCAST_PROBE_METHOD": "event",
        "KERNELCAST_PROBE_STANDALONE": "1",
        "KERNELCAST_PROBE_NVTX": "1",
        "KERNELCAST_HINTS": "off",
    }
    assert expected.items() <= caught.value.environ.items()


def test_unset_options_are_left_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELCAST_PROGRAM", "mine")
    monkeypatch.setenv("PYTHONPATH", f"/a:{command.PRELOAD}:/b")
    with pytest.raises(Become) as caught:
        command.main(["--", "true"], execute=become)
    assert caught.value.environ["KERNELCAST_PROGRAM"] == "mine"
    assert caught.value.environ["PYTHONPATH"] == f"{command.PRELOAD}:/a:/b"
    assert "KERNELCAST_PROBE_METHOD" not in caught.value.environ


@pytest.mark.parametrize(("given", "passed_on"), [("0", "0"), ("off", "off"), ("", "1"), ("1", "1")])
def test_a_probe_that_is_switched_off_stays_off_below_the_command(given: str, passed_on: str) -> None:
    assert command.environment({}, {"KERNELCAST_PROBE": given})["KERNELCAST_PROBE"] == passed_on


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [("", ""), (":/a", "::/a"), ("/a:", ":/a:"), (command.PRELOAD, ""), (f"{command.PRELOAD}::/a", "::/a")],
)
def test_a_program_imports_from_the_current_directory_as_without_the_probe(given: str, passed_on: str) -> None:
    """An empty path in `PYTHONPATH` is the current directory, as in `PYTHONPATH=$UNSET:/a`."""
    assert command.environment({}, {"PYTHONPATH": given})["PYTHONPATH"] == command.PRELOAD + passed_on


@pytest.mark.parametrize(
    "options",
    [
        "",
        "--program resnet --rank 3 --socket /s --interval 2 --method event --standalone --nvtx --hints off",
        "--program a --program b",
        "--interval 1e1 --rank 0",
        "--interval 0",
        "--standalone --standalone",
    ],
)
@pytest.mark.parametrize("program", ["true", "mpirun -n 2 -- python train.py --rank 1"])
def test_plain_options_mean_what_argparse_reads(options: str, program: str) -> None:
    arguments = [*options.split(), "--", *program.split()]
    plain = command._plain(arguments)
    assert plain is not None
    assert plain == command._parsed(arguments)


@pytest.mark.parametrize(
    "arguments",
    ["", "--", "--help", "true", "--program=a -- true", "--rank -1 -- true", "--method guess -- true", "--program",
     "--interval soon -- true", "--programme a -- true", "--program -- true"],
)  # fmt: skip
def test_everything_else_is_left_to_argparse(arguments: str) -> None:
    assert command._plain(arguments.split()) is None


def test_the_first_module_that_cupy_compiles_starts_the_probe() -> None:
    started: list[int] = []
    with installed() as cupy:
        waiter = ContextWaiter(lambda: started.append(1), lambda: ())
        waiter.start()
        assert not waiter.is_polling
        assert list(started) == []
        cupy.compile("raw")
        cupy.compile("raw")
        assert started == [1]
        assert not isinstance(cupy.modules["cupy.cuda.compiler"].function, FirstModuleWatch)


def test_a_probe_that_does_not_start_costs_the_program_nothing() -> None:
    def broken() -> None:
        raise RuntimeError("no")

    with installed() as cupy:
        ContextWaiter(broken, lambda: ()).start()
        (raw,) = cupy.compile("raw")
        raw((1,), (1,), ())
        assert len(cupy.gpu.launches) == 1


def test_pytorch_is_asked_to_call_and_only_then_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[Any] = []
    contexts: list[int] = []
    torch = ModuleType("torch")
    torch.__dict__["cuda"] = ModuleType("torch.cuda")
    torch.__dict__["cuda"].__dict__["_lazy_call"] = queued.append
    monkeypatch.setitem(sys.modules, "torch", torch)
    started: list[str] = []
    waiter = ContextWaiter(lambda: started.append(threading.current_thread().name), lambda: tuple(contexts))
    waiter.start()
    assert len(queued) == 1
    assert not waiter.is_polling
    queued[0]()
    assert wait_for(lambda: waiter.is_polling)
    contexts.append(0)
    assert wait_for(lambda: started == ["kernelcast-context"])


def test_a_framework_that_gives_no_sign_is_watched_by_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib", ModuleType("jaxlib"))
    started: list[int] = []
    waiter = ContextWaiter(lambda: started.append(1), lambda: (0,))
    waiter.start()
    assert wait_for(lambda: started == [1])
    assert wait_for(lambda: not waiter.is_polling)


def test_two_threads_that_find_the_context_at_once_start_the_probe_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    waiter = ContextWaiter(lambda: started.append(1), lambda: ())
    stop = waiter.stop

    def stop_after_another_thread() -> None:
        monkeypatch.setattr(waiter, "stop", stop)
        waiter.context_found()
        stop()

    monkeypatch.setattr(waiter, "stop", stop_after_another_thread)
    waiter.context_found()
    assert started == [1]


def test_two_imports_at_once_start_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    waiter = ContextWaiter(lambda: None, lambda: ())
    starts: list[threading.Thread] = []

    def start_while_another_import_ends(thread: threading.Thread) -> None:
        starts.append(thread)
        if len(starts) < 3:
            waiter._start_polling()

    monkeypatch.setattr(threading.Thread, "start", start_while_another_import_ends)
    waiter._start_polling()
    waiter.stop()
    assert len(starts) == 1


def test_an_import_that_ends_after_the_waiting_has_stopped_changes_no_library() -> None:
    queued: list[Any] = []
    torch = ModuleType("torch")
    torch.__dict__["cuda"] = ModuleType("torch.cuda")
    torch.__dict__["cuda"].__dict__["_lazy_call"] = queued.append
    with installed() as cupy:
        compiler = cupy.modules["cupy.cuda.compiler"]
        real = compiler.function
        waiter = ContextWaiter(lambda: None, lambda: ())
        waiter.stop()
        waiter._watch_cupy(compiler)
        waiter._watch_torch(torch)
        assert compiler.function is real
    assert queued == []


def test_a_second_call_to_wait_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context_waiter, "_process", context_waiter._Process())
    before = [finder for finder in sys.meta_path if not isinstance(finder, ImportWatch)]
    monkeypatch.setattr(sys, "meta_path", list(before))
    monkeypatch.setattr(context_waiter, "marks", ProcessMarks())
    context_waiter.wait_for_context(lambda: None)
    context_waiter.wait_for_context(lambda: None)
    marking, waiting = [finder for finder in sys.meta_path if finder not in before]
    assert isinstance(waiting, ImportWatch)
    assert isinstance(marking, ImportWatch)
    context_waiter.stop_waiting()
    assert (waiting.has_ended, marking.has_ended) == (True, False)


def test_an_interpreter_starts_although_the_probe_cannot_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[object] = []

    def fail(start_probe: object) -> None:
        attempts.append(start_probe)
        raise ZeroDivisionError

    monkeypatch.setenv(SWITCH, "1")
    monkeypatch.setattr(context_waiter, "wait_for_context", fail)
    before = list(sys.meta_path)
    door.open_door()
    assert len(attempts) == 1
    assert sys.meta_path == before


def test_an_import_is_reported_once_it_is_complete_and_keeps_its_own_loader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watched_by_test.py").write_text("early = __loader__.__class__.__name__\nvalue = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[int] = []

    def listen(module: Any) -> None:
        seen.append(module.value)
        raise RuntimeError("a listener's trouble is its own")

    watch = ImportWatch({"watched_by_test": listen})
    watch.start()
    import watched_by_test  # type: ignore[import-not-found]

    assert seen == [5]
    assert watched_by_test.early == type(watched_by_test.__spec__.loader).__name__ != "_Reporting"
    assert not watch._listeners
    del sys.modules["watched_by_test"]


def test_a_watched_name_that_does_not_exist_fails_as_ever() -> None:
    watch = ImportWatch({"there_is_no_such_module": lambda _module: None})
    watch.start()
    with pytest.raises(ModuleNotFoundError):
        import there_is_no_such_module  # type: ignore[import-not-found] # noqa: F401
    watch.stop()


@pytest.mark.parametrize("options", ["", "--rank=1"])
def test_options_behind_the_program_are_its_own_without_a_separator_too(
    options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERNELCAST_RANK", raising=False)
    program = "python train.py --steps 10 --rank 3 --help -- --nvtx"
    with pytest.raises(Become) as caught:
        command.main([*options.split(), *program.split()], execute=become)
    assert caught.value.arguments == program.split()
    assert caught.value.environ.get("KERNELCAST_RANK", "") == options.partition("=")[2]
    assert "KERNELCAST_PROBE_NVTX" not in caught.value.environ


def test_an_unknown_option_before_the_program_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--standlone", "python", "train.py", "--steps", "10"])
    assert "unrecognized arguments: --standlone; did you mean --standalone?" in capsys.readouterr().err
