"""Compilation of parts in two processes, with doubles for the parts, the disk and the second process."""

import dis
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from kernelcast.bridge import example_run, warm_up
from kernelcast.bridge.compilation import Compilation, CompilingMachine
from kernelcast.bridge.warm_up import NEEDED_LATER, NEEDED_TO_BE_READY, PARTS, CompilationUnit
from kernelcast.columnar.compiled import code_cache

PLANNED = (*NEEDED_TO_BE_READY, *NEEDED_LATER)


@dataclass
class Site:
    """A machine with doubles: the parts on disk, and the parts compiled in each process.

    Attributes:
        on_disk: Names of parts.
        survives: How many parts the second process compiles before it ends.
        on_compile: Called after each part that this process compiles.
    """

    on_disk: set[str] = field(default_factory=set)
    cores: int = 2
    is_writable: bool = True
    survives: int = 9
    here: list[str] = field(default_factory=list)
    second: list[str] = field(default_factory=list)
    stopped: int = 0
    on_compile: Callable[[], None] = lambda: None

    def compilation(self) -> Compilation:
        parts = {name: CompilationUnit((name,), lambda name=name: self._compile(name)) for name in PLANNED}  # type: ignore[misc]
        return Compilation(CompilingMachine(self.cores, self._missing, lambda: self.is_writable, self._start), parts)

    def _missing(self, modules: Sequence[str]) -> list[str]:
        return [name for name in modules if name not in self.on_disk]

    def _compile(self, name: str) -> None:
        if name not in self.on_disk:
            self.here.append(name)
            self.on_compile()

    def _start(self, parts: Sequence[str]) -> "Site":
        self.second += parts[: self.survives]
        return self

    def lines(self) -> Iterator[str]:
        yield "something that numba says\n"
        for name in self.second:
            self.on_disk.add(name)
            yield f"ready {name} 1.0\n"

    def stop(self) -> None:
        self.stopped += 1


def run(site: Site) -> list[str]:
    """Compile everything; the messages of the log."""
    with capture_logs() as logs:
        compilation = site.compilation()
        compilation.finish_what_readiness_needs()
        compilation.finish_the_rest()
    return [f"{entry['event']} {entry.get('part', '')} {entry.get('done', '')}".strip() for entry in logs]


def test_nothing_is_started_or_logged_where_all_is_on_disk() -> None:
    site = Site(on_disk=set(PLANNED))
    assert run(site) == []
    assert site.second == []


def test_a_second_process_compiles_all_but_the_first_part_and_each_part_is_logged() -> None:
    site = Site()
    log = run(site)
    assert (site.here, site.second) == (["decoder"], ["series", "protobuf"])
    assert log[0].startswith("compiling")
    assert log[1:] == ["compiled decoder 1/3", "compiled series 2/3", "compiled protobuf 3/3"]


def test_only_missing_parts_are_compiled() -> None:
    site = Site(on_disk={"decoder"})
    run(site)
    assert (site.here, site.second) == (["series"], ["protobuf"])


def test_parts_that_are_needed_later_are_left_to_the_second_process() -> None:
    site = Site(on_disk=set(NEEDED_TO_BE_READY))
    run(site)
    assert (site.here, site.second) == ([], list(NEEDED_LATER))


@pytest.mark.parametrize("site", [Site(cores=1), Site(is_writable=False)], ids=["one core", "nowhere to write"])
def test_one_process_compiles_all_where_a_second_could_not_help(site: Site) -> None:
    run(site)
    assert (site.here, site.second) == (list(PLANNED), [])


def test_this_process_compiles_the_parts_that_an_ended_second_process_has_left() -> None:
    site = Site(survives=1)
    log = run(site)
    assert site.here == ["decoder", "protobuf"]
    assert [line for line in log if "ended early" in line]


def test_a_bridge_that_stops_ends_the_second_process() -> None:
    site = Site()
    compilation = site.compilation()
    compilation.finish_what_readiness_needs()
    compilation.stop()
    assert site.stopped == 1


@pytest.mark.parametrize("cores", [1, 2])
def test_a_bridge_that_stops_compiles_no_further_part(cores: int) -> None:
    site = Site(cores=cores, survives=0)
    compilation = site.compilation()
    site.on_compile = compilation.stop
    compilation.finish_what_readiness_needs()
    compilation.finish_the_rest()
    assert site.here == ["decoder"]


def test_no_second_process_is_started_by_a_bridge_that_stops() -> None:
    site = Site()
    compilation = site.compilation()
    compilation.stop()
    compilation.finish_what_readiness_needs()
    assert site.second == []


@pytest.mark.usefixtures("loaded")
def test_every_function_of_the_bridge_belongs_to_a_part_and_is_compiled_by_it() -> None:
    beginnings = tuple(module for part in PARTS.values() for module in part.modules)
    assert code_cache.not_on_disk(["kernelcast."]) == code_cache.not_on_disk(beginnings) == []


def test_the_check_of_an_image_fails_and_names_the_compiled_parts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(warm_up, "PARTS", {"decoder": CompilationUnit((), lambda: None)})
    monkeypatch.setattr(example_run, "run_messages_through", lambda: None)
    monkeypatch.setattr(code_cache, "compiled_here", list)
    assert warm_up.main(["--check"]) == 0
    monkeypatch.setattr(code_cache, "compiled_here", lambda: ["kernelcast.columnar.walk.entries.batch"])
    assert warm_up.main(["--check"]) == 1
    shown = capsys.readouterr()
    assert shown.out.count("ready decoder") == 2
    assert "kernelcast.columnar.walk.entries.batch" in shown.err
    assert "NUMBA_CACHE_DIR" in shown.err


@pytest.mark.usefixtures("loaded")
def test_messages_need_nothing_that_the_example_points_have_not_compiled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert warm_up.main([]) == 0
    assert capsys.readouterr().out.split()[::3] == ["ready", "ready"]
    before = signatures()
    example_run.run_messages_through()
    assert signatures() == before


def signatures() -> dict[str, list[object]]:
    """The signatures that each function of the bridge was compiled for."""
    return {code_cache._name(each): list(each.signatures) for each in code_cache._DISPATCHERS}


def test_compiled_functions_call_no_kernel() -> None:
    """Machine code on disk can be run and not compiled into other functions."""
    kernels = {id(each) for each in code_cache._DISPATCHERS}
    compiled = [
        value
        for name, module in sorted(sys.modules.items())
        if name.startswith("kernelcast.")
        for value in vars(module).values()
        if hasattr(value, "py_func")
    ]
    assert len(compiled) > 100
    called = {
        f"{each.py_func.__qualname__} calls {name}"
        for each in compiled
        for name in {step.argval for step in dis.get_instructions(each.py_func) if step.opname == "LOAD_GLOBAL"}
        if id(each.py_func.__globals__.get(name)) in kernels
    }
    assert called == set()
