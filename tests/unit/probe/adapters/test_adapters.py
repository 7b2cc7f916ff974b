"""Adapters with doubles of the frameworks: the calls that they make, and the configuration that a campaign finds."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kernelcast import probe as kp
from kernelcast.probe.probe import Probe


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Probe]:
    monkeypatch.setenv("KERNELCAST_TUNING_DIRECTORY", str(tmp_path))
    running = kp.start("adapted", socket_path=str(tmp_path / "none"), source="simulated")
    running.recorder.budget.grant(1e15)  # compilation is slow on the clock of these tests
    yield running
    kp.stop()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that only kernels spend."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr("kernelcast.probe.tuned.shapes.perf_counter", lambda: now.seconds)
    return now


class Tensor:
    """A tensor with one value."""

    dtype = "float32"

    def __init__(self, value: int) -> None:
        self.value = value

    def clone(self) -> "Tensor":
        return Tensor(self.value)

    def copy_(self, other: "Tensor") -> None:
        self.value = other.value

    def zero_(self) -> None:
        self.value = 0


class Config:
    """The parts of `triton.Config` that launchers read."""

    def __init__(self, kwargs: dict[str, Any], num_warps: int = 4) -> None:
        self.kwargs = kwargs
        self.num_warps = num_warps
        self.pre_hook: Callable[[Mapping[str, Any]], None] | None = None

    def all_kwargs(self) -> dict[str, Any]:
        return {**self.kwargs, "num_warps": self.num_warps}

    def __str__(self) -> str:
        return f"BLOCK: {self.kwargs['BLOCK']}, num_warps: {self.num_warps}"


class Kernel:
    """A function of `triton.jit`: it adds 1 to `x` and writes the sum of all blocks to `out`."""

    __name__ = "add"
    arg_names = ("x", "out", "n", "BLOCK")

    def __init__(self, clock: SimpleNamespace) -> None:
        self.clock = clock
        self.compiled: set[int] = set()
        self.launched: Counter[int] = Counter()

    def run(self, x: Tensor, out: Tensor, n: int, *, grid: Any, warmup: bool, **named: Any) -> None:
        block = named["BLOCK"]
        if block not in self.compiled:
            self.compiled.add(block)
            self.clock.seconds += 5.0
        if warmup:
            return
        assert grid == (n,)
        self.launched[block] += 1
        x.value += 1
        out.value += x.value
        self.clock.seconds += 1e-3 * (1 + abs(block - 64) / 64)
        if block == 1024:
            raise RuntimeError("out of resource: shared memory")


CONFIGS = [Config({"BLOCK": block}) for block in (16, 32, 64, 1024)]


def test_a_triton_kernel_is_tuned_while_it_works_and_each_call_counts_once(
    probe: Probe, clock: SimpleNamespace
) -> None:
    kernel = Kernel(clock)
    tuned = kp.triton_autotune(CONFIGS, ["n"], reset_to_zero=["out"], restore_value=["x"], share=1e6, rep=50)(kernel)
    x = Tensor(0)
    for number in range(1, 6000):
        out = Tensor(0)
        tuned[4,](x, out, 4)
        assert (x.value, out.value) == (number, number)
    assert kernel.launched[1024] == 1
    assert kernel.launched.most_common(1)[0][0] == 64
    launched = kernel.launched.copy()
    tuned[4,](x, Tensor(0), 4)
    assert (kernel.launched - launched) == {64: 1}
    assert tuned.fn is kernel
    assert probe.recorder is not None


def test_a_pruned_configuration_of_triton_never_runs(probe: Probe, clock: SimpleNamespace) -> None:
    del probe
    kernel = Kernel(clock)

    def early(configs: list[Config], given: dict[str, Any], **_named: Any) -> list[Config]:
        return [one for one in configs if one.kwargs["BLOCK"] >= given["n"]]

    pruning = {"early_config_prune": early, "perf_model": lambda BLOCK, **_: BLOCK, "top_k": 2}  # noqa: N803  a key
    tuned = kp.triton_autotune(CONFIGS, ["n"], prune_configs_by=pruning, share=1e6)(kernel)
    for _ in range(6000):
        tuned[32,](Tensor(0), Tensor(0), 32)
    assert set(kernel.launched) == {32, 64}


def test_configurations_of_triton_with_long_texts_are_told_apart(probe: Probe, clock: SimpleNamespace) -> None:
    """Triton's text of a configuration has its options and `ir_override`, the path of a file; they may differ last."""
    del probe

    class Long(Config):
        def __str__(self) -> str:
            return f"num_warps: 4, ir_override: /{'long/' * 60}{self.kwargs['BLOCK']}.ttgir"

    kernel = Kernel(clock)
    pruning = {"early_config_prune": lambda configs, _given, **_named: configs}
    configs = [Long({"BLOCK": block}) for block in (16, 64)]
    tuned = kp.triton_autotune(configs, ["n"], prune_configs_by=pruning, share=1e6)(kernel)
    for _ in range(6000):
        tuned[4,](Tensor(0), Tensor(0), 4)
    assert kernel.launched.most_common(1)[0][0] == 64
    assert set(kernel.launched) == {16, 64}


def test_hooks_of_triton_run_before_a_trial_and_before_its_repetition(probe: Probe, clock: SimpleNamespace) -> None:
    del probe
    calls: list[str] = []

    def before(given: Mapping[str, Any], *, reset_only: bool = False) -> None:
        calls.append(f"before {given['BLOCK']} {reset_only}")

    def after(given: Mapping[str, Any], *, exception: Exception | None) -> None:
        calls.append(f"after {given['BLOCK']} {exception}")

    configs = [CONFIGS[0], CONFIGS[3]]
    tuned = kp.triton_autotune(configs, ["n"], pre_hook=before, post_hook=after, share=1e6)(Kernel(clock))
    for _ in range(20):
        tuned[4,](Tensor(0), Tensor(0), 4)
    assert calls == ["before 1024 False", "after 1024 None", "before 1024 True"]


class DescriptorKernel(Kernel):
    """A kernel whose host-side descriptor must have the block of the configuration before it is compiled."""

    arg_names = ("desc", "n", "BLOCK")  # type: ignore[assignment]

    def run(self, desc: dict[str, int], n: int, *, grid: Any, warmup: bool, **named: Any) -> None:  # type: ignore[override]
        del grid
        block = named["BLOCK"]
        if desc["block"] != block:
            raise RuntimeError(f"CompilationError: the descriptor has block {desc['block']}, the kernel {block}")
        if not warmup:
            self.launched[block] += 1
            self.clock.seconds += 1e-3 * n / block


def test_a_hook_of_a_configuration_runs_before_it_is_compiled(probe: Probe, clock: SimpleNamespace) -> None:
    """Review: as the tutorial for TMA descriptors does it; the program ended at its first call."""
    del probe
    kernel = DescriptorKernel(clock)
    configs = [Config({"BLOCK": block}) for block in (16, 32, 64)]
    for config in configs:
        config.pre_hook = lambda given: given["desc"].__setitem__("block", given["BLOCK"])
    tuned = kp.triton_autotune(configs, ["n"], share=1e6)(kernel)
    for _ in range(6000):
        tuned[4,]({"block": 1}, 4)
    assert kernel.launched.most_common(1)[0][0] == 64
    assert set(kernel.launched) == {16, 32, 64}


def test_triton_without_configurations_runs_its_default(probe: Probe, clock: SimpleNamespace) -> None:
    """Triton allows it, as a switch that turns tuning off; here it ended the import of the program."""
    del probe, clock
    given: list[dict[str, Any]] = []
    kernel = SimpleNamespace(__name__="add", arg_names=("n",), run=lambda *_values, **named: given.append(named))
    tuned = kp.triton_autotune([], ["n"])(kernel)
    tuned[4,](4)
    tuned.run(4, grid=(4,), warmup=False)
    assert [one for one in given if not one["warmup"]] == [{"grid": (4,), "warmup": False}] * 2


def test_a_launch_prunes_once_for_each_shape_and_compares_no_configurations(clock: SimpleNamespace) -> None:
    """Review: 540 us a launch for 64 configurations, and 630 us with 17 shapes in turn, also without a probe."""
    pruned: list[int] = []

    class Compared(Config):
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise AssertionError("configurations are compared by their arguments, which takes microseconds each")

    def early(configs: list[Config], given: dict[str, Any], **_named: Any) -> list[Config]:
        pruned.append(given["n"])
        return configs[1:]

    kernel = Kernel(clock)
    configs = [Compared({"BLOCK": block}) for block in (16, 32, 64)]
    tuned = kp.triton_autotune(configs, ["n"], prune_configs_by={"early_config_prune": early})(kernel)
    for _ in range(3):
        for n in range(100):
            tuned[n,](Tensor(0), Tensor(0), n)
    assert pruned == list(range(100))
    assert kernel.launched == {32: 300}, "the first one that is not pruned"


def test_cupy_kernels_get_options_grid_and_block_from_the_configuration(
    probe: Probe, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[tuple[Any, ...]] = []
    modules: list[tuple[str, ...]] = []

    class RawKernel:
        def __init__(self, _code: str, name: str, options: tuple[str, ...] = ()) -> None:
            self.name, self.options, self.ready = name, options, False

        @property
        def attributes(self) -> dict[str, int]:
            if not self.ready:
                self.ready = True
                clock.seconds += 5.0
            return {"num_regs": 32}

        def __call__(self, grid: Any, block: Any, arguments: Any, *, shared_mem: int = 0) -> None:
            assert self.attributes
            launched.append((self.options, grid, block, arguments, shared_mem))
            clock.seconds += 1e-3 * (1 + abs(block[0] - 64) / 64)

    class RawModule:
        def __init__(self, *, code: str, options: tuple[str, ...], name_expressions: tuple[str, ...]) -> None:
            modules.append(name_expressions)
            self.code, self.options = code, options

        def get_function(self, name: str) -> RawKernel:
            return RawKernel(self.code, name, self.options)

    cupy = ModuleType("cupy")
    cupy.RawKernel, cupy.RawModule = RawKernel, RawModule  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    space = probe.space("saxpy", {"bx": [16, 64], "unroll": [False, True]}, start={"bx": 16, "unroll": False})
    run = kp.cupy_kernel(
        space, "code", "saxpy", grid=lambda c, n: (n // c.bx,), block=lambda c, _n: (c.bx,), options=["-std=c++17"],
        shared_memory_bytes=lambda c, _n: 4 * c.bx, share=1e6,
    )  # fmt: skip
    for _ in range(6000):
        run(1024)
    assert launched[0] == (("-std=c++17", "-Dbx=16", "-Dunroll=0"), (64,), (16,), (1024,), 64)
    assert launched[-1][1:3] == ((16,), (64,))
    kp.cupy_kernel(space, "code", "f<int>", grid=lambda *_: (1,), block=lambda *_: (1,), name_expressions=["f<int>"])()
    assert modules == [("f<int>",)]


def test_a_cupy_kernel_may_use_more_shared_memory_than_cuda_gives_unasked(
    probe: Probe, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA launches with more than 48 KiB of dynamic shared memory only after the function's limit was raised."""

    class RawKernel:
        def __init__(self, _code: str, _name: str, options: tuple[str, ...] = ()) -> None:
            self.options, self.attributes = options, {"num_regs": 32}
            self.max_dynamic_shared_size_bytes = 48 * 1024

        def __call__(self, _grid: Any, _block: Any, _arguments: Any, *, shared_mem: int = 0) -> None:
            if shared_mem > self.max_dynamic_shared_size_bytes:
                raise ValueError("CUDA_ERROR_INVALID_VALUE: invalid argument")
            clock.seconds += 1e-3 * 64 * 1024 / shared_mem

    cupy = ModuleType("cupy")
    cupy.RawKernel = RawKernel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    space = probe.space("tiled", {"kib": [32, 64, 96]}, start={"kib": 32})
    run = kp.cupy_kernel(
        space, "code", "tiled", grid=lambda *_: (1,), block=lambda *_: (64,),
        shared_memory_bytes=lambda c: c.kib * 1024, share=1e6,
    )  # fmt: skip
    for _ in range(6000):
        run()
    before = clock.seconds
    run()
    assert clock.seconds - before == pytest.approx(1e-3 * 64 / 96)


def test_plain_functions_get_the_configuration_as_keyword_arguments(probe: Probe) -> None:
    space = probe.space("smooth", {"chunk": [1, 2], "order": ["rows", "columns"]}, start={"chunk": 2, "order": "rows"})
    seen: list[tuple[int, int, str]] = []

    def smooth(values: int, *, chunk: int, order: str) -> int:
        """Smooth."""
        seen.append((values, chunk, order))
        return values

    tuned = space.tuned(kp.keywords(smooth))
    assert (tuned(7), tuned.__name__, tuned.__doc__) == (7, "smooth", "Smooth.")
    assert seen == [(7, 2, "rows")]


class Loader:
    """A `DataLoader` that computes nothing, with the arguments that it got.

    As PyTorch's, it draws a seed for each iterator, of which persistent workers need one alone.
    """

    made: list[dict[str, Any]]

    def __init__(
        self, dataset: Any, *, batch_sampler: Any, num_workers: int, generator: Any = None, **options: Any
    ) -> None:
        assert not options or num_workers
        self.dataset, self.batch_sampler = dataset, batch_sampler
        self.generator, self.persistent = generator, options.get("persistent_workers")
        self.seed: int | None = None
        Loader.made.append({"num_workers": num_workers, **options})

    def __iter__(self) -> Iterator[list[Any]]:
        if self.seed is None or not self.persistent:
            self.seed = drawn(self.generator)
        return iter([[self.dataset[index] for index in batch] for batch in self.batch_sampler])


class Generator:
    """A `torch.Generator`."""

    default: "Generator"

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.random = Random(0)

    def manual_seed(self, seed: int) -> "Generator":
        self.random.seed(seed)
        return self


class Empty:
    """A tensor of one element, on the default device; it draws from no generator of another one."""

    device = "cpu"

    def __init__(self, _shape: tuple[()], dtype: object) -> None:
        del dtype
        self._value = 0

    def random_(self, *, generator: Generator | None = None) -> "Empty":
        assert generator is None or generator.device == self.device
        self._value = (generator or Generator.default).random.getrandbits(62)
        return self

    def item(self) -> int:
        return self._value


def drawn(generator: Generator | None) -> int:
    """Draw a seed as PyTorch's samplers and loaders do."""
    return Empty((), None).random_(generator=generator).item()


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    torch = ModuleType("torch")
    Generator.default = Generator()
    torch.__dict__.update(Generator=Generator, empty=Empty, int64=int)
    data = SimpleNamespace(DataLoader=Loader)
    Loader.made = []
    for name, module in (("torch", torch), ("torch.utils.data", data)):
        monkeypatch.setitem(sys.modules, name, module)
    return torch


def test_the_loader_changes_between_segments_and_keeps_the_order_of_samples(probe: Probe, torch: ModuleType) -> None:
    del torch
    batches = [[0, 1], [2, 3], [4, 5], [6, 7], [8]]
    loader = kp.TorchLoader(list("abcdefghi"), batches, workers=[0, 4], prefetch=[2], segment_batches=2)
    workers = probe._tunables.get("loader_workers")
    assert workers is not None
    seen, ends = [], []
    for batch in loader:
        seen.append(batch)
        ends.append(loader.at_end)
        if len(seen) == 2:
            workers.put("4")
    assert ["".join(batch) for batch in seen] == ["ab", "cd", "ef", "gh", "i"]
    assert ends == [False, True, False, True, True]
    assert Loader.made == [{"num_workers": 0}, {"num_workers": 4, "prefetch_factor": 2, "persistent_workers": True}]
    assert (len(loader), workers.terms.granularity) == (5, "epoch")


def test_the_loader_follows_a_change_of_the_default_device(
    probe: Probe, torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `torch.set_default_device` the second epoch raised, because the generator was of the first device."""
    del probe, torch
    loader = kp.TorchLoader(list("abcd"), [[0, 1], [2, 3]], workers=[0], prefetch=[2])
    assert len(list(loader)) == 2
    monkeypatch.setattr(Empty, "device", "cuda:0")
    Generator.default = Generator("cuda:0")
    assert len(list(loader)) == 2
    assert len(list(loader)) == 2
    assert len(Loader.made) == 2


class ShuffledBatches:
    """A batch sampler whose order PyTorch's own generator decides, as that of `RandomSampler`."""

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(8))
        Random(drawn(None)).shuffle(order)
        yield from ([one] for one in order)

    def __len__(self) -> int:
        return 8


@pytest.mark.parametrize("given", [None, Generator()])
def test_the_order_of_each_epoch_is_that_of_a_plain_loader_for_every_number_of_workers(
    probe: Probe, torch: ModuleType, given: Generator | None
) -> None:
    def epochs(workers: str) -> list[list[str]]:
        Generator.default = Generator()
        loader = kp.TorchLoader(
            list("abcdefgh"), ShuffledBatches(), workers=[0, 4], prefetch=[2], segment_batches=3, generator=given
        )
        tunable = probe._tunables.get("loader_workers")
        assert tunable is not None
        tunable.put(workers)
        return [["".join(batch) for batch in loader] for _ in range(3)]

    del torch
    alone, with_workers = epochs("0"), epochs("4")
    Generator.default = Generator()
    plain = Loader(list("abcdefgh"), batch_sampler=ShuffledBatches(), num_workers=0, generator=given)
    assert alone == with_workers == [["".join(batch) for batch in plain] for _ in range(3)]


def test_a_loader_draws_on_the_programs_default_device(
    probe: Probe, torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`torch.set_default_device("cuda")` makes the loaders' seeds tensors of the GPU."""
    del probe, torch
    monkeypatch.setattr(Empty, "device", "cuda")
    loader = kp.TorchLoader(list("ab"), [[0], [1]], workers=[0], prefetch=[2])
    assert ["".join(batch) for batch in loader] == ["a", "b"]


def test_compile_modes_are_tried_where_pytorch_has_them(
    probe: Probe, torch: ModuleType, clock: SimpleNamespace
) -> None:
    del probe

    def forward(x: int) -> int:
        clock.seconds += 1e-3
        return x + 1

    assert kp.torch_compiled(forward) is forward

    def compiled(function: Callable[[int], int], *, mode: str) -> Callable[[int], int]:
        def run(x: int) -> int:
            clock.seconds -= 5e-4 if mode == "max-autotune" else 1e-4
            return function(x)

        return run

    torch.compile = compiled  # type: ignore[attr-defined]
    run = kp.torch_compiled(forward, share=1e6)
    assert [run(number) for number in range(6000)] == list(range(1, 6001))
    before = clock.seconds
    run(1)
    assert clock.seconds - before == pytest.approx(5e-4)


class Array:
    """An array of JAX on some devices."""

    shape, dtype = (3,), "float32"

    def __init__(self, sharding: str, *, committed: bool = True) -> None:
        self.sharding, self.committed = sharding, committed


class Jitted:
    """A jitted function; compiled ahead of time, it takes no arrays elsewhere and keeps the precision, as JAX's does.

    Source: jax/_src/interpreters/pxla.py, `check_array_xla_sharding_layout_match`; measured with JAX 0.10.2.
    """

    def __init__(self, function: Callable[..., Any], config: SimpleNamespace) -> None:
        self._function, self._config = function, config

    def __call__(self, array: Array, **named: Any) -> tuple[Any, Any]:
        return self._function(array, **named), self._config.jax_default_matmul_precision

    def lower(self, lowered: Array, **static: Any) -> Any:
        precision = self._config.jax_default_matmul_precision

        def ready(array: Array) -> tuple[Any, Any]:
            if array.committed and array.sharding != lowered.sharding:
                raise ValueError("Computation was compiled for input shardings that disagree")
            return self._function(array, **static), precision

        return SimpleNamespace(compile=lambda: ready)


def test_a_tuned_function_of_jax_takes_arrays_on_any_device_in_any_precision(
    probe: Probe, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    del probe
    config = SimpleNamespace(jax_default_matmul_precision=None, jax_enable_x64=False)
    tree = SimpleNamespace(
        tree_leaves=lambda given: list(given[0]), tree_flatten=lambda given: (list(given[0]), "one array")
    )
    jax = ModuleType("jax")
    jax.__dict__.update(
        config=config,
        core=SimpleNamespace(Tracer=Jitted),
        tree_util=tree,
        jit=lambda function, static_argnames: Jitted(function, config),
    )
    monkeypatch.setitem(sys.modules, "jax", jax)

    def work(array: Array, *, factor: int) -> str:
        clock.seconds += 1e-3 / factor
        return array.sharding

    run = kp.jax_static(kp.space("work", {"factor": [1, 2]}, start={"factor": 1}), work, share=1e6)
    for _ in range(6000):
        assert run(Array("GPU 0")) == ("GPU 0", None)
    before = clock.seconds
    assert run(Array("GPU 1")) == ("GPU 1", None)
    assert run(Array("GPU 1", committed=False)) == ("GPU 1", None)
    config.jax_default_matmul_precision = "highest"
    assert run(Array("GPU 0")) == ("GPU 0", "highest")
    assert clock.seconds - before == pytest.approx(3 * 5e-4), "the kept configuration is in force"


def test_jax_compiles_for_each_configuration_and_shape() -> None:
    """With the real library where it is installed."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    space = kp.space("scale", {"factor": [1, 2]}, start={"factor": 2})

    def scale(values: Any, *, factor: int, power: int) -> Any:
        return (values * factor) ** power

    run = kp.jax_static(space, scale, static_argnames=["power"])
    ones = jax.numpy.ones(3)
    assert run(ones, power=2).tolist() == [4, 4, 4]
    assert jax.jit(lambda x: run(x, power=1))(ones).tolist() == [2, 2, 2]
