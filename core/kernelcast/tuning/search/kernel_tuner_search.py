"""Kernel Tuner's strategies as a search: `pip install 'kernelcast[kernel-tuner]'`.

`choice` imports it for `--search kernel-tuner`.

A strategy of Kernel Tuner calls for costs; it cannot be asked. So it runs on a thread of its own, which works only
while `ask` waits for it. It draws from the generators of `random` and numpy that the whole process shares. So they
have numbers of its own while it works; afterwards the program finds them as they were. Other threads that draw from
them in that moment get the strategy's numbers.
"""

import queue
import random
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import inf
from types import SimpleNamespace
from typing import Any, Final

from kernelcast.tuning.search.sweep import Sweep
from kernelcast.tuning.space import Space
from kernelcast.wire.errors import ConfigurationError

STRATEGY: Final = "genetic_algorithm"
MAX_REPEATED: Final = 100_000
"""Costs in a row that a strategy asks for again; beyond it the strategy is over."""


def required() -> Any:
    """Import Kernel Tuner.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        return import_module("kernel_tuner")
    except ImportError as error:
        raise ConfigurationError(_message(str(error))) from error


class OwnRandomNumbers:
    """Numbers of the strategy in the generators of the process, within `with`.

    Args:
        seed: Of the numbers.
    """

    def __init__(self, seed: int) -> None:
        self._numpy = import_module("numpy").random
        self._own = self._state()
        with self:
            random.seed(seed)
            self._numpy.seed(seed)

    def __enter__(self) -> None:
        self._program = self._state()
        self._set(self._own)

    def __exit__(self, *_error: object) -> None:
        self._own = self._state()
        self._set(self._program)

    def _state(self) -> tuple[Any, Any]:
        return random.getstate(), self._numpy.get_state()

    def _set(self, state: tuple[Any, Any]) -> None:
        random.setstate(state[0])
        self._numpy.set_state(state[1])


class KernelTunerSearch:
    """A strategy by ask and tell. For one thread besides its own. Where the strategy ends, a sweep goes on.

    Args:
        space: The space.
        seed: Of all random choices.
        seeds: Configurations to begin with, best first.
        strategy: Name of a strategy, as Kernel Tuner's users give it.
        options: The strategy's own options.

    Raises:
        ConfigurationError: Kernel Tuner is not installed, or has no such strategy.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int,
        seeds: Sequence[int] = (),
        strategy: str = STRATEGY,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        required()
        try:
            interface = import_module("kernel_tuner.interface")
            if strategy not in interface.strategy_map:
                known = ", ".join(sorted(interface.strategy_map))
                raise ConfigurationError(f"Kernel Tuner has no strategy {strategy!r}; it has {known}")
            self._tune = interface.strategy_map[strategy].tune
            self._stop = import_module("kernel_tuner.util").StopCriterionReached
            made = import_module("kernel_tuner.searchspace").Searchspace
            self._options_type = interface.Options
        except ImportError as error:
            raise ConfigurationError(_message(f"strategy {strategy}: {error}")) from error
        self._options = dict(options or {})
        self._numbers = OwnRandomNumbers(seed)
        self._space = space
        self._seeds = list(dict.fromkeys((space.start, *seeds)))[::-1]
        self._sweep = Sweep(space, seed=seed)
        self._known: dict[int, float] = {}
        self._asked: set[int] = set()
        self._waiting: int | None = None
        self._has_ended = False
        self._repeated = 0
        self._requests: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        values = {parameter.name: list(parameter.values) for parameter in space.parameters}

        def valid(given: Mapping[str, Any]) -> bool:  # a lambda would be parsed by Kernel Tuner
            return self._ordinal(list(given.values())) is not None

        with self._numbers:
            self._searchspace = made(values, valid, max_threads=2**31)
        self._thread = threading.Thread(target=self._run, name="kernel-tuner", daemon=True)

    def ask(self) -> int | None:
        """Return a valid configuration that was neither asked for nor measured; None when there is no other."""
        while self._seeds:
            ordinal = self._seeds.pop()
            if ordinal not in self._asked:
                return self._noted(ordinal)
        with self._numbers:
            wanted = self._next_request()
        return self._unasked() if wanted is None else self._noted(wanted)

    def _next_request(self) -> int | None:
        """Let the strategy work until it asks for a cost; None if it has ended."""
        if self._has_ended:
            return None
        if self._waiting is None:
            self._thread.start()
        else:  # one without a cost was not measured, and will not be
            self._answers.put(self._known.get(self._waiting, inf))
        self._waiting = self._requests.get()
        self._has_ended = self._waiting is None
        return self._waiting

    def _unasked(self) -> int | None:
        """Return a configuration that the strategy has left out."""
        ordinal = self._sweep.ask()
        while ordinal is not None and ordinal in self._asked:
            ordinal = self._sweep.ask()
        return None if ordinal is None else self._noted(ordinal)

    def tell(self, ordinal: int, cost: float | None) -> None:
        """Add the cost of a configuration, asked for or not; None for one that failed."""
        self._asked.add(ordinal)
        self._known[ordinal] = inf if cost is None else cost

    def close(self) -> None:
        """End the strategy's thread, if it waits for a cost; a sweep goes on."""
        if not self._has_ended and self._waiting is not None:
            self._has_ended = True
            self._answers.put(None)

    def _noted(self, ordinal: int) -> int:
        self._asked.add(ordinal)
        return ordinal

    def _ordinal(self, values: list[Any]) -> int | None:
        try:
            return self._space.ordinal([getattr(value, "item", lambda value=value: value)() for value in values])
        except Exception:  # noqa: BLE001  values that are not valid
            return None

    def _run(self) -> None:
        budget = SimpleNamespace(raise_exception_if_done=lambda: None, get_fraction_consumed=lambda: 0.0)
        given = {"objective": ["time"], "objective_higher_is_better": [False], "verbose": False, "budget": budget}
        options = self._options_type(given, strategy_options=self._options_type(self._options))
        runner = SimpleNamespace(run=self._costs, add_strategy_time=lambda _: None)
        try:
            self._tune(self._searchspace, runner, options)
        except Exception:  # noqa: BLE001, S110  the end of the strategy, for whatever reason: the sweep goes on
            pass
        finally:
            self._requests.put(None)

    def _costs(self, configs: Sequence[Sequence[Any]], _options: Any) -> list[dict[str, Any]]:
        """Return the results of configurations, as Kernel Tuner's runners do."""
        return [self._cost(list(config)) for config in configs]

    def _cost(self, values: list[Any]) -> dict[str, Any]:
        names = [parameter.name for parameter in self._space.parameters]
        ordinal = self._ordinal(values)
        cost: float | None = inf
        if ordinal in self._known:
            self._repeated += 1
            if self._repeated > MAX_REPEATED:
                raise self._stop("it asks for known configurations only")
            cost = self._known[ordinal]
        elif ordinal is not None and ordinal not in self._asked:
            self._repeated = 0
            self._requests.put(ordinal)
            cost = self._answers.get()
            if cost is None:
                raise self._stop("the search is closed")
        result = dict(zip(names, values, strict=True))
        failed = {"__error__": import_module("kernel_tuner.util").RuntimeFailedConfig()}
        return {**result, "time": cost} if cost is not None and cost < inf else {**result, **failed}


def _message(problem: str) -> str:
    return f"Kernel Tuner cannot be imported: {problem}; pip install 'kernelcast[kernel-tuner]'"
