"""Other profilers that use CUPTI are noticed for as long as they run."""

from types import ModuleType

import pytest

from kernelcast.probe.cupti.watch import ProfilerWatch


def test_a_profiler_that_fails_to_start_does_not_count_as_running() -> None:
    torch = ModuleType("torch.autograd.profiler")

    def refuse() -> None:
        raise RuntimeError("the profiler cannot be enabled")

    torch.__dict__.update(_prepare_profiler=lambda: None, _enable_profiler=refuse, _disable_profiler=lambda: None)
    watch = ProfilerWatch({}, {"torch.autograd.profiler": torch}, frozenset)
    announced: list[str] = []
    watch.on_start(announced.append)
    torch._prepare_profiler()
    assert watch.running() == "PyTorch's profiler runs"
    with pytest.raises(RuntimeError, match="cannot be enabled"):
        torch._enable_profiler()
    assert watch.running() == ""
    torch._prepare_profiler()
    torch._disable_profiler()
    assert watch.running() == ""
    assert announced == ["PyTorch's profiler runs"] * 3
    watch.release()
    assert torch._enable_profiler is refuse


def test_a_second_start_that_fails_leaves_the_profiler_that_records() -> None:
    """CUPTI was taken from PyTorch's profiler in the middle of its recording."""
    torch = ModuleType("torch.autograd.profiler")
    starts: list[int] = []

    def enable() -> None:
        starts.append(1)
        if len(starts) > 1:
            raise RuntimeError("it is already enabled")

    torch.__dict__.update(_prepare_profiler=lambda: None, _enable_profiler=enable, _disable_profiler=lambda: None)
    watch = ProfilerWatch({}, {"torch.autograd.profiler": torch}, frozenset)
    watch.on_start(lambda _name: None)
    torch._prepare_profiler()
    torch._enable_profiler()
    torch._prepare_profiler()
    with pytest.raises(RuntimeError, match="already"):
        torch._enable_profiler()
    assert watch.running() == "PyTorch's profiler runs"
    torch._disable_profiler()
    assert watch.running() == ""
