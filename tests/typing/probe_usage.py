"""Programs as users write them, for type checkers: mypy and pyright read this file, nothing runs it.

`assert_type` states the type that a checker must infer. An ignored line must be an error: an unused ignore is one.
"""

from typing import assert_type

from kernelcast import probe


def measured() -> None:
    running = probe.start("train", 3, standalone=True, devices=[probe.DeviceClaim("GPU-1", model_name="H200")])
    assert_type(running, probe.Probe)
    running.observe("gemm", 1_000, grid=(8, 1, 1), block="128x1x1", registers=32)
    running.count("gemm", 2)
    running.copy("h2d", 1024, 500, pinned=True)
    running.sync("stream", 900)
    running.step(epoch=True)
    assert_type(running.settings.program, str)
    assert_type([outcome.hint_id for outcome in running.outcomes], list[str])
    running.stop()


def by_functions() -> None:
    probe.observe("gemm", 1_000, grid=8, block=(128, 1, 1), shared_memory_bytes=1024, device=1)
    probe.count("gemm")
    probe.copy("d2h", 1024, 500)
    probe.sync("device", 900, device=1)
    probe.step()
    probe.stop()


def tuned() -> None:
    block = probe.tunable("block_size", [64, 128], 128, kind="block_size", kernels=["gemm"])
    assert_type(block, probe.Tunable[int])
    assert_type(block.value, int)
    assert_type(block.allowed, tuple[str, ...])
    assert_type(probe.tunable("fraction", (0.25, 0.5), 0.5).value, float)
    assert_type(probe.tunable("layout", ["nchw", "nhwc"], "nhwc", granularity="restart").value, str)


class Communicator:
    def all_gather(self, text: str) -> list[str]:
        return [text]


def together() -> None:
    batch = probe.tunable("batch", [64, 128], 64, scope="collective", group=Communicator(), changes_results=True)
    assert_type(batch, probe.Tunable[int])
    feed = probe.space("feed", {"workers": [0, 2]}, start={"workers": 0}, per="epoch", share=0.02)
    assert_type(feed, probe.ProgramSpace)


@probe.region("forward")
def forward(batch: list[float], *, scale: int = 1) -> str:
    return str(batch * scale)


def regions() -> None:
    with probe.region("loading") as loading:
        assert_type(loading, probe.region)
    assert_type(forward([1.0], scale=2), str)
    forward(1)  # type: ignore[arg-type]
    forward([1.0], size=2)  # type: ignore[call-arg]


def refused() -> None:
    probe.observe("gemm", "1000")  # type: ignore[arg-type]
    probe.start(interval=1)  # type: ignore[call-arg]
    probe.tunable("tile", [[1], [2]], [1])  # type: ignore[type-var]
    probe.no_such_name()  # type: ignore[attr-defined]
