"""Stand-ins for CuPy, PyTorch and JAX, as far as the examples use them, for machines without the framework or a GPU."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
from tests.support.probe.cupy_double import Cupy, installed


@contextmanager
def cupy() -> Iterator[Cupy]:
    """CuPy's shape, with kernels that are launched on a double of a GPU and compute nothing."""
    with installed() as double:

        class RawKernel:
            """Compiles at its first launch, as CuPy's does."""

            def __init__(self, _source: str, name: str) -> None:
                self._name = name
                self._function: Any = None

            def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...]) -> None:
                if self._function is None:
                    (self._function,) = double.compile(self._name)
                self._function(grid, block, arguments)

        names = {"RawKernel": RawKernel, "ones": np.ones, "zeros": np.zeros, "float32": np.float32, "int32": np.int32}
        double.modules["cupy"].__dict__.update(names)
        yield double


@contextmanager
def torch() -> Iterator[MagicMock]:
    """A PyTorch without a GPU that accepts every call; it shows the order of calls, not that PyTorch knows them."""
    double = MagicMock(name="torch")
    double.cuda.is_available.return_value = False
    double.distributed.is_initialized.return_value = False
    model = double.nn.Sequential().to()
    model().square().mean().item.return_value = 0.5
    with modules({"torch": double, "torch.distributed": double.distributed, "torch.nn": double.nn}):
        yield double


@contextmanager
def mpi4py() -> Iterator[SimpleNamespace]:
    """An MPI whose job has one rank, which is its own neighbour."""
    ranks = SimpleNamespace(rank=0, size=1, allgather=lambda sent: [sent], sendrecv=lambda sent, dest, source: sent)
    ranks.Dup = lambda: ranks
    with modules({"mpi4py": SimpleNamespace(MPI=SimpleNamespace(COMM_WORLD=ranks))}):
        yield ranks


@contextmanager
def jax() -> Iterator[SimpleNamespace]:
    """A JAX that computes with numpy, and gradients by differences."""

    def value_and_grad(function: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
        def both(weights: Any, *rest: Any) -> tuple[Any, Any]:
            steps = np.eye(len(weights)) * 1e-6
            slopes = [(function(weights + step, *rest) - function(weights - step, *rest)) / 2e-6 for step in steps]
            return function(weights, *rest), np.array(slopes)

        return both

    random = SimpleNamespace(key=np.random.default_rng, normal=lambda key, shape: key.normal(size=shape))
    double: Any = ModuleType("jax")
    double.Array, double.numpy, double.random = np.ndarray, np, random
    double.jit, double.value_and_grad = lambda function: function, value_and_grad
    double.block_until_ready, double.default_backend = lambda value: value, lambda: "cpu"
    with modules({"jax": double, "jax.numpy": np}):
        yield double


@contextmanager
def modules(replaced: Mapping[str, Any]) -> Iterator[None]:
    """Have these modules imported for a while."""
    before = {name: sys.modules.get(name) for name in replaced}
    sys.modules.update(replaced)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
