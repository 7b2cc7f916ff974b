"""Triton's kernels: a drop-in for `triton.autotune` that tunes while the program works."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.probe.activation.current import space as declare
from kernelcast.probe.tuned.space import ProgramSpace

PARAMETER: Final = "config"
MAX_PRUNED: Final = 16


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
    share: float = 0.01,
    **ignored: Any,
) -> Callable[[Any], "TunedKernel"]:
    """Decorate a function of `triton.jit`, as `triton.autotune` does, and tune it while the program works.

    `triton.autotune` measures all configurations at the first call of each key, and runs the kernel some hundred times
    for it. Here each call of the program runs one configuration once: the kept one, or one that is being tried within
    the share of time. The first configuration is the start.

    Args:
        configs: The configurations, as `triton.Config`.
        key: Names of arguments; each combination of their values and of all types is tuned by itself.
        prune_configs_by: `early_config_prune`, `perf_model` and `top_k`, as for `triton.autotune`.
        reset_to_zero: Names of tensors that are set to zero before a call is repeated, because a configuration failed.
        restore_value: Names of tensors whose values are restored before that. They are copied before each trial call.
        pre_hook: Called with all arguments before each trial call, and with `reset_only=True` before it is repeated.
        post_hook: Called with all arguments before a call is repeated.
        name: Name of the space; by default the kernel's.
        share: Share of the calls' time that trials may cost.
        ignored: `warmup`, `rep`, `use_cuda_graph`, `do_bench` and `cache_results` have no use here.
    """
    del ignored

    def decorate(kernel: Any) -> TunedKernel:
        restoring = Restoring(tuple(reset_to_zero or ()), tuple(restore_value or ()), pre_hook, post_hook)
        texts = {str(config): config for config in configs}
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
    """Chooses the configurations that may run for a call's arguments, as `prune_configs_by` of Triton says."""

    def __init__(self, rules: Mapping[str, Any]) -> None:
        self._early = rules.get("early_config_prune")
        self._model = rules.get("perf_model")
        self._top = rules.get("top_k", 1.0)

    def left(self, configs: Sequence[Any], by_name: dict[str, Any], named: dict[str, Any]) -> list[Any]:
        """Return the configurations that are left, at least one."""
        found = list(self._early(list(configs), by_name, **named) if self._early else configs) or list(configs[:1])
        top = max(1, int(len(found) * self._top)) if isinstance(self._top, float) else int(self._top)
        if self._model and len(found) > top:
            model, arguments = self._model, {**by_name, **named}
            expected = {id(one): model(**{**arguments, **one.all_kwargs()}) for one in found}
            found = sorted(found, key=lambda one: expected[id(one)])[:top]
        return found


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
        share: float,
    ) -> None:
        self.fn = kernel
        self.configs = list(texts.values())
        self.space = space
        self.arg_names = list(kernel.arg_names)
        self._texts = texts
        self._keys = keys
        self._pruning = pruning
        self._restoring = restoring
        self._left: dict[tuple[object, ...], list[Any]] = {}
        self._run = space.tuned(self._launch, shape=self._bucket, prepare=self._prepare, undo=self._undo, share=share)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Return the launcher for a grid."""
        return lambda *arguments, **named: self.run(*arguments, grid=grid, warmup=False, **named)

    def run(self, *arguments: Any, **named: Any) -> Any:
        """Launch with the configuration of this call."""
        return self._run(*arguments, **named)

    def _launch(self, configuration: Mapping[str, Any], *arguments: Any, **named: Any) -> Any:
        config = self._config(configuration, arguments, named)
        if getattr(config, "pre_hook", None):
            config.pre_hook({**self._by_name(arguments), **named, **config.all_kwargs()})
        return self.fn.run(*arguments, **named, **config.all_kwargs())

    def _undo(self, configuration: Mapping[str, Any], *arguments: Any, **named: Any) -> Callable[[], None]:
        config = self._texts[configuration[PARAMETER]]
        return self._restoring.prepared({**self._by_name(arguments), **named, **config.all_kwargs()})

    def _prepare(self, configuration: Mapping[str, Any], *arguments: Any, **named: Any) -> None:
        """Compile without a launch."""
        text = configuration[PARAMETER]
        if text != next(iter(self._texts)) and self._texts[text] not in self._allowed(arguments, named):
            raise ValueError(f"prune_configs_by leaves {text} out for these arguments")
        config = self._config(configuration, arguments, named)
        self.fn.run(*arguments, **{**named, **config.all_kwargs(), "warmup": True})

    def _config(self, configuration: Mapping[str, Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Return the configuration; for a start that is pruned, the first one that is not."""
        config, allowed = self._texts[configuration[PARAMETER]], self._allowed(arguments, named)
        return config if config in allowed else allowed[0]

    def _allowed(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        bucket = self._bucket(*arguments, **named)
        found = self._left.get(bucket)
        if found is None:
            if len(self._left) >= MAX_PRUNED:
                self._left.pop(next(iter(self._left)))
            found = self._left[bucket] = self._pruning.left(self.configs, self._by_name(arguments), dict(named))
        return found

    def _by_name(self, arguments: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self.arg_names, arguments, strict=False))

    def _bucket(self, *arguments: Any, **named: Any) -> tuple[object, ...]:
        """Return the values of the key's arguments, and the types of all."""
        given = {**self._by_name(arguments), **named}
        known = {name: value for name, value in given.items() if name in self.arg_names}
        types = (str(value.dtype) for value in known.values() if hasattr(value, "dtype"))
        return (*(known[name] for name in self._keys if name in known), *types)
