"""PyTorch's training loop: the loader, the buckets of gradients, the memory format and `torch.compile`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Final

from kernelcast.probe.activation.current import space, tunable

EAGER: Final = "eager"
COMPILE_MODES: Final = (EAGER, "default", "reduce-overhead", "max-autotune")


class TorchLoader:
    """A `DataLoader` whose workers and prefetching change within an epoch, between segments of some batches.

    The batches and their order are those of a `DataLoader`, whatever the values; samples that draw from PyTorch's own
    generator need a sampler with another one. The loader keeps its workers until a value changes. Only hints change
    them, which need Kafka and a predictor: beside a `--standalone` exporter they stay. ::

        batches = probe.TorchLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 64, drop_last=True))
        for images, labels in batches:
            train(images, labels)
            probe.step(items=len(images), epoch=batches.at_end)

    Attributes:
        at_end: Whether the last batch was the last of its segment: its `step` passes `epoch=True`.

    Args:
        dataset: As for `DataLoader`; indexable.
        batch_sampler: Yields the indices of each batch.
        workers: Numbers of workers that may be tried; the first is the start.
        prefetch: Batches that each worker may prepare in advance; the first is the start.
        segment_batches: Batches after which the values may change. A trial takes 56 segments where a value saves
            30 %, 120 where it saves 10 %.
        name: Prefix of the tunables' names.
        terms: `scope`, `group` and other terms of both tunables, as for `tunable`. Ranks that train together need them.
        options: Further arguments of `DataLoader`.
    """

    def __init__(  # noqa: PLR0913  a loader's parts, most with a default
        self,
        dataset: Any,
        batch_sampler: Any,
        *,
        workers: Sequence[int] = (0, 2, 4),
        prefetch: Sequence[int] = (2, 4),
        segment_batches: int = 32,
        name: str = "loader",
        terms: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        given: dict[str, Any] = {"granularity": "epoch", **(terms or {})}
        self.at_end = False
        self._dataset = dataset
        self._batches = batch_sampler
        self._segment_batches = segment_batches
        self._options = options
        self._workers = tunable(f"{name}_workers", workers, workers[0], kind="loader_workers", **given)
        self._prefetch = tunable(f"{name}_prefetch", prefetch, prefetch[0], kind="prefetch", **given)
        self._segment = _Segment()
        self._generator: Any = None
        self._made: tuple[int, int] | None = None
        self._loader: Any = None

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one epoch."""
        self._draw_seed()
        indices = iter(self._batches)
        segment = list(islice(indices, self._segment_batches))
        while segment:
            following = list(islice(indices, self._segment_batches))
            self._segment.indices = segment
            for number, batch in enumerate(self._present()):
                self.at_end = number == len(segment) - 1
                yield batch
            segment = following

    def __len__(self) -> int:
        """Return the batches of an epoch."""
        return len(self._batches)

    def _draw_seed(self) -> None:
        """Draw once for each epoch, as a `DataLoader` does.

        A loader of a segment draws from a generator of its own, for its workers: how often depends on the values, and
        a sampler that draws from PyTorch's own generator would give another order in the next epoch.
        """
        torch = import_module("torch")
        seed = torch.empty((), dtype=torch.int64).random_(generator=self._options.get("generator"))
        if self._generator is None or self._generator.device != seed.device:  # the default device has changed
            self._generator = torch.Generator(device=seed.device)
            self._made = None
        self._generator.manual_seed(seed.item())

    def _present(self) -> Any:
        """Return the loader for the values in force."""
        workers, prefetch = self._workers.value, self._prefetch.value
        if self._made != (workers, prefetch):
            more = {"prefetch_factor": prefetch, "persistent_workers": True} if workers else {}
            made = import_module("torch.utils.data").DataLoader
            options = {**self._options, **more, "generator": self._generator}
            self._loader = made(self._dataset, batch_sampler=self._segment, num_workers=workers, **options)
            self._made = workers, prefetch
        return self._loader


class _Segment:
    """The batch sampler of the present segment."""

    def __init__(self) -> None:
        self.indices: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self.indices)

    def __len__(self) -> int:
        return len(self.indices)


class TorchBuckets:
    """A `DistributedDataParallel` that is wrapped again when the size of its buckets changes.

    All ranks call `wrapped` together, at the beginning of an epoch. ::

        buckets = probe.TorchBuckets(model, [1, 5, 25], terms={"group": dist.group.WORLD})
        for epoch in range(epochs):
            train_epoch(buckets.wrapped())

    Args:
        module: The module.
        sizes_mb: Sizes that may be tried; the first is the start.
        name: Name of the tunable.
        terms: `group` and other terms of the tunable, as for `tunable`; the ranks need one.
        configure: Called with each new wrapper, for example to register a communication hook.
        options: Further arguments of `DistributedDataParallel`.
    """

    def __init__(
        self,
        module: Any,
        sizes_mb: Sequence[float],
        *,
        name: str = "bucket_mb",
        terms: Mapping[str, Any] | None = None,
        configure: Callable[[Any], object] | None = None,
        **options: Any,
    ) -> None:
        given: dict[str, Any] = {"scope": "collective", "granularity": "epoch", **(terms or {})}
        self._module = module
        self._options = options
        self._configure = configure
        self._size_mb = tunable(name, sizes_mb, sizes_mb[0], kind="bucket_size", **given)
        self._made: float | None = None
        self._wrapper: Any = None

    def wrapped(self) -> Any:
        """Return the module, wrapped with buckets of the size in force."""
        if self._made != self._size_mb.value:
            self._wrapper = None  # its hooks on the parameters end before the next ones begin
            self._made = self._size_mb.value
            made = import_module("torch.nn.parallel").DistributedDataParallel
            self._wrapper = made(self._module, bucket_cap_mb=self._made, **self._options)
            if self._configure:
                self._configure(self._wrapper)
        return self._wrapper


class TorchMemoryFormat:
    """The memory format of images and of a model: channels last or contiguous.

    `layout(model)` and `layout(images)` convert to the format in force, at the beginning of each epoch and each step.

    Args:
        name: Name of the tunable.
        channels_last: Whether the program begins with channels last.
        terms: `scope`, `group` and other terms of the tunable, as for `tunable`.
    """

    def __init__(
        self, name: str = "channels_last", *, channels_last: bool = False, terms: Mapping[str, Any] | None = None
    ) -> None:
        given: dict[str, Any] = {"granularity": "epoch", **(terms or {})}
        self._channels_last = tunable(name, ["off", "on"], "on" if channels_last else "off", kind="layout", **given)

    def __call__(self, converted: Any) -> Any:
        """Convert a tensor of four dimensions, or a module, to the format in force."""
        torch = import_module("torch")
        chosen = torch.channels_last if self._channels_last.value == "on" else torch.contiguous_format
        return converted.to(memory_format=chosen)


def torch_compiled(
    function: Callable[..., Any], *, modes: Sequence[str] = COMPILE_MODES, name: str = "", share: float | None = None
) -> Callable[..., Any]:
    """Return a function that runs uncompiled or in a mode of `torch.compile`, whichever is proved faster.

    Where PyTorch has no `torch.compile` (before 2.0) the function itself is returned; where it has none for this
    version of Python, every mode but `eager` fails. Only the time of the call is compared: of a model in training, that
    is the forward pass.

    Args:
        function: A function or module.
        modes: Modes of `torch.compile`, and `eager`; the first is the start.
        name: Name of the space; by default the function's.
        share: Share of the calls' time that trials may cost; None for that of the process; compiling counts.
    """
    torch = import_module("torch")
    if not hasattr(torch, "compile"):
        return function
    chosen = name or getattr(function, "__name__", type(function).__name__)
    kinds = space(chosen, {"mode": list(modes)}, start={"mode": modes[0]})
    made: dict[str, Callable[..., Any]] = {EAGER: function}

    def compiled(mode: str) -> Callable[..., Any]:
        if mode not in made:
            made[mode] = torch.compile(function, mode=mode)
        return made[mode]

    def call(configuration: Any, *arguments: Any, **named: Any) -> Any:
        return compiled(configuration.mode)(*arguments, **named)

    call.__name__ = chosen
    run: Callable[..., Any] = kinds.tuned(call, shape=_shapes, prepare=call, share=share)
    return run


def _shapes(*arguments: Any, **named: Any) -> tuple[object, ...]:
    given = (*arguments, *named.values())
    return tuple((tuple(one.shape), str(one.dtype)) for one in given if hasattr(one, "shape") and hasattr(one, "dtype"))
