"""Triton's kernels: a drop-in for `triton.autotune` that tunes while the program works."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any, Final

from kernelcast.probe.activation.current import space as declare
from kernelcast.probe.tuned.space import ProgramSpace
from kernelcast.tuning.space.parameters import MAX_TEXT

Arguments = tuple[Any, ...]
Named = Mapping[str, Any]
Bucket = tuple[object, ...]

PARAMETER: Final = "config"
MAX_PRUNED: Final = 1024
"""Shapes whose pruned configurations are remembered; with more of them all are pruned again."""


def triton_autotune(  # noqa: PLR0913, PLR0917  the arguments of triton.autotune
    configs: Sequence[Any],
    key: Sequence[str],
    prune_configs_by: Mapping[str, Any] | None = None,
    reset_to_zero: Sequence[str] | None = None,
    restore_value: Sequence[str] | None = None,
    pre_hook: Callable[..., None] | None = None,
    post_hook: Callable[..., None] | None = None,
    *,
    name: str = "",
    share: float | None = None,
    **ignored: Any,
) -> Callable[[Any], "TunedKernel"]:
    """Decorate a function of `triton.jit`, as `triton.autotune` does, and tune it while the program works.

    `triton.autotune` measures all configurations at the first call of each key, and runs the kernel some hundred times
    for it. Here each call of the program runs one configuration once: the kept one, or one that is being tried within
    the share of time. The first configuration is the start.

    Args:
        configs: The configurations, as `triton.Config`; none for Triton's default alone.
        key: Names of arguments; each combination of their values and of all types is tuned by itself.
        prune_configs_by: `early_config_prune`, `perf_model` and `top_k`, as for `triton.autotune`.
        reset_to_zero: Names of tensors that are set to zero before a call is repeated, because a configuration failed.
        restore_value: Names of tensors whose values are restored before that. They are copied before each trial call.
        pre_hook: Called with all arguments before each trial call, and with `reset_only=True` before it is repeated.
        post_hook: Called with all arguments before a call is repeated.
        name: Name of the space; by default the kernel's.
        share: Share of the calls' time that trials may cost; None for that of the process.
        ignored: `warmup`, `rep`, `use_cuda_graph`, `do_bench` and `cache_results` have no use here.
    """
    del ignored

    def decorate(kernel: Any) -> TunedKernel:
        restoring = Restoring(tuple(reset_to_zero or ()), tuple(restore_value or ()), pre_hook, post_hook)
        texts = {_text(config): config for config in configs or (DefaultConfig(),)}
        chosen = name or getattr(kernel, "__name__", "") or getattr(getattr(kernel, "fn", None), "__name__", "kernel")
        space = declare(chosen, {PARAMETER: list(texts)}, start={PARAMETER: next(iter(texts))})
        return TunedKernel(
            kernel,
            space,
            texts=texts,
            keys=tuple(key),
            pruning=Pruning(prune_configs_by or {}),
            restoring=restoring,
            share=share,
        )

    return decorate


class DefaultConfig:
    """The one configuration of a kernel that is declared without any: the options that Triton takes by itself."""

    pre_hook = None

    def all_kwargs(self) -> dict[str, Any]:
        """Return the arguments that it adds to a launch."""
        return {}

    def __str__(self) -> str:
        return "default"


@dataclass(frozen=True, slots=True)
class Restoring:
    """Restores the tensors of a call before it is repeated.

    Triton calls these hooks around each measurement, and measures a call many times. Here a call runs once, so they are
    called around candidates only, and their effect is wanted only where a call is repeated.

    Attributes:
        zeroed: Names of tensors that are set to zero.
        restored: Names of tensors whose values are restored.
        pre_hook, post_hook: Hooks of the program, which do that in place of `zeroed` and `restored`.
    """

    zeroed: tuple[str, ...]
    restored: tuple[str, ...]
    pre_hook: Callable[..., None] | None
    post_hook: Callable[..., None] | None

    def prepared(self, given: Mapping[str, Any]) -> Callable[[], None]:
        """Note the present values of a call's arguments; returns a function that restores them."""
        if self.pre_hook:
            self.pre_hook(given)
        copies = {name: given[name].clone() for name in self.restored if given.get(name) is not None}

        def restore() -> None:
            if self.post_hook:
                self.post_hook(given, exception=None)
            for name, values in copies.items():
                given[name].copy_(values)
            if self.pre_hook:
                self.pre_hook(given, reset_only=True)
            else:
                for name in self.zeroed:
                    if given.get(name) is not None:
                        given[name].zero_()

        return restore


class Pruning:
    """Chooses the configurations that may run for a call's arguments, as `prune_configs_by` of Triton says.

    Attributes:
        is_needed: Whether there are rules at all.
    """

    def __init__(self, rules: Mapping[str, Any]) -> None:
        self._early = rules.get("early_config_prune")
        self._model = rules.get("perf_model")
        self._top = rules.get("top_k", 1.0)
        self.is_needed = bool(self._early or self._model)

    def remaining(self, configs: Sequence[Any], by_name: dict[str, Any], named: dict[str, Any]) -> dict[str, Any]:
        """Return the configurations that are not pruned by their texts, at least one."""
        found = list(self._early(list(configs), by_name, **named) if self._early else configs) or list(configs[:1])
        top = max(1, int(len(found) * self._top)) if isinstance(self._top, float) else int(self._top)
        if self._model and len(found) > top:
            model, arguments = self._model, {**by_name, **named}
            expected = {id(one): model(**{**arguments, **one.all_kwargs()}) for one in found}
            found = sorted(found, key=lambda one: expected[id(one)])[:top]
        return {_text(one): one for one in found}


class TunedKernel:
    """A kernel of Triton that is tuned: `kernel[grid](…)`, `kernel.run(…, grid=grid)`; `triton_autotune` makes it.

    Attributes:
        fn: The kernel below.
        configs: The configurations.
        space: Its space, with the kept configuration.
    """

    def __init__(  # noqa: PLR0913  the parts of a decorated kernel
        self,
        kernel: Any,
        space: ProgramSpace,
        *,
        texts: Mapping[str, Any],
        keys: tuple[str, ...],
        pruning: Pruning,
        restoring: Restoring,
        share: float | None,
    ) -> None:
        self.fn = kernel
        self.configs = list(texts.values())
        self.space = space
        self.arg_names = list(kernel.arg_names)
        self._known = frozenset(self.arg_names)
        self._texts = texts
        self._keys = keys
        self._pruning = pruning
        self._restoring = restoring
        self._start = next(iter(texts))
        # Configurations that are not pruned, by shape bucket and text.
        self._remaining: dict[Bucket, dict[str, Any]] = {}
        self._run = space.tuned(self._launch, shape=_bucket_of, prepare=self._prepare, undo=self._undo, share=share)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return the launcher for a grid."""
        return lambda *arguments, **named: self.run(*arguments, grid=grid, warmup=False, **named)

    def run(self, *arguments: Any, **named: Any) -> Any:
        """Launch with the configuration of this call."""
        return self._run(self._bucket(arguments, named), arguments, named)

    def _launch(self, configuration: Mapping[str, Any], bucket: Bucket, arguments: Arguments, named: Named) -> Any:
        config = self._config(configuration[PARAMETER], bucket, arguments, named)
        self._call_hook(config, arguments, named)
        return self.fn.run(*arguments, **named, **config.all_kwargs())

    def _undo(
        self, configuration: Mapping[str, Any], _bucket: Bucket, arguments: Arguments, named: Named
    ) -> Callable[[], None]:
        config = self._texts[configuration[PARAMETER]]
        return self._restoring.prepared({**self._by_name(arguments), **named, **config.all_kwargs()})

    def _prepare(self, configuration: Mapping[str, Any], bucket: Bucket, arguments: Arguments, named: Named) -> None:
        """Compile without a launch; a pruned configuration is refused."""
        text = configuration[PARAMETER]
        if text != self._start and self._pruning.is_needed and text not in self._not_pruned(bucket, arguments, named):
            raise ValueError(f"prune_configs_by leaves {text} out for these arguments")
        config = self._config(text, bucket, arguments, named)
        self._call_hook(config, arguments, named)  # it may complete the arguments, such as descriptors
        self.fn.run(*arguments, **{**named, **config.all_kwargs(), "warmup": True})

    def _call_hook(self, config: Any, arguments: Arguments, named: Named) -> None:
        if getattr(config, "pre_hook", None):
            config.pre_hook({**self._by_name(arguments), **named, **config.all_kwargs()})

    def _config(self, text: str, bucket: Bucket, arguments: Arguments, named: Named) -> Any:
        """Return the configuration; for a start that is pruned, the first one that is not."""
        if not self._pruning.is_needed:
            return self._texts[text]
        remaining = self._not_pruned(bucket, arguments, named)
        return remaining[text] if text in remaining else next(iter(remaining.values()))

    def _not_pruned(self, bucket: Bucket, arguments: Arguments, named: Named) -> dict[str, Any]:
        found = self._remaining.get(bucket)
        if found is None:
            found = self._pruning.remaining(self.configs, self._by_name(arguments), dict(named))
            if len(self._remaining) >= MAX_PRUNED:
                self._remaining = {}  # replaced, because another thread may read it
            self._remaining[bucket] = found
        return found

    def _by_name(self, arguments: Arguments) -> dict[str, Any]:
        return dict(zip(self.arg_names, arguments, strict=False))

    def _bucket(self, arguments: Arguments, named: Named) -> Bucket:
        """Return the values of the key's arguments, and the types of all."""
        given = dict(zip(self.arg_names, arguments, strict=False))
        given |= {name: value for name, value in named.items() if name in self._known}
        bucket = [given[name] for name in self._keys if name in given]
        bucket += [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
        return tuple(bucket)


def _text(config: Any) -> str:
    """Return the text by which a configuration is known; a long one ends in a digest of all of it."""
    text = str(config)
    if len(text) <= MAX_TEXT:
        return text
    digest = blake2s(text.encode(), digest_size=8).hexdigest()
    return f"{text[: MAX_TEXT - 1 - len(digest)]} {digest}"


def _bucket_of(bucket: Bucket, *_rest: object) -> Bucket:
    return bucket
