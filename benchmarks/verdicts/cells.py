"""Verdicts in a program with a virtual clock: `python -m benchmarks.verdicts.cells [CELL …] [--trials N] [--direct]`.

Each trial is a program with a space of two values that change per step, a probe, and a share of 1 %; a step takes what
the cell says. With `--direct` the experiment alone runs, without search and budget. The table has, for each cell, the
true change of the mean time, the share of the trials that were kept with its exact 95 % interval, the shares of those
that were rolled back, ended otherwise and had not ended, the median steps until the verdict, and the mean time over
that of the untuned program.
"""

import argparse
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from math import exp, pi, sin, sqrt
from random import Random
from statistics import fmean, median
from typing import Any, Final, NamedTuple

from scipy.stats import binomtest

SLICE_SECONDS: Final = 0.003
"""Processor time that a thread gets before others run, where a core has several (Linux, two cores)."""


class LoadedCore:
    """The time by the clock of a thread that shares its core with others, by the processor time that it has used."""

    def __init__(self) -> None:
        self.others = 0.0
        self._random = Random(1)
        self._sliced = self._waited = 0.0

    def share(self, others: float, seed: int, used: float) -> None:
        """Run beside so many other threads from now on."""
        self.others, self._random, self._sliced = others, Random(f"load {seed}"), used

    def clock(self, used: float) -> float:
        """Return the time by the clock after some seconds of processor time."""
        while self.others and used - self._sliced > SLICE_SECONDS:
            self._sliced += SLICE_SECONDS * self._random.uniform(0.5, 1.5)
            self._waited += SLICE_SECONDS * self.others * self._random.uniform(0.5, 1.5)
        return used + self._waited


# The clock is replaced before the probe reads it. In the example the time of the search is added: it is charged, too.
_now = [0.0]
_searched = [0.0]
_core = LoadedCore()


def _used() -> float:
    return _now[0] + _searched[0] * time.thread_time()


time.perf_counter = lambda: _core.clock(_used())
time.perf_counter_ns = lambda: round(time.perf_counter() * 1e9)

from kernelcast.probe.probe import Probe, ProbeSettings  # noqa: E402
from kernelcast.probe.tuned import close  # noqa: E402
from kernelcast.probe.tuned.space import SpaceTerms  # noqa: E402
from kernelcast.tuning.experiment import Arm, Decision, Experiment  # noqa: E402

Step = Callable[[bool], float]
"""Takes whether the candidate is in force; returns the step's time, 1 for a typical step of the untuned program."""


class Cell(NamedTuple):
    """A kind of step: its true change of the mean time (negative is faster), and a maker of its steps."""

    change: float
    make: Callable[[Random, float], Step]


def jitter(deviation: float) -> Callable[[Random, float], Step]:
    """Log-normal times."""
    offset = deviation * deviation / 2
    return lambda random, change: lambda new: exp(random.gauss(-offset, deviation)) * (1 + change * new)


def _level(level: Callable[[int, Random], float]) -> Callable[[Random, float], Step]:
    """A level that does not depend on the arm, with jitter of 2 %."""

    def make(random: Random, change: float) -> Step:
        step = [random.randrange(1000)]

        def seconds(new: bool) -> float:  # noqa: FBT001
            step[0] += 1
            return level(step[0], random) * exp(random.gauss(0, 0.02)) * (1 + change * new)

        return seconds

    return make


def tail(typical: float, rate: float, times: float, kept_rate: float = 0.0) -> Callable[[Random, float], Step]:
    """Typical steps of the candidate take `typical`, one in 1 / `rate` takes `times` as long."""

    def make(random: Random, _change: float) -> Step:
        def seconds(new: bool) -> float:  # noqa: FBT001
            is_tail = random.random() < (rate if new else kept_rate)
            return (typical if new else 1.0) * (times if is_tail else 1.0) * exp(random.gauss(0, 0.02))

        return seconds

    return make


def bursts(size: float, begins: float, ends: float) -> Callable[[Random, float], Step]:
    """A neighbour that comes and goes, whatever arm runs."""

    def make(random: Random, change: float) -> Step:
        busy = [False]

        def seconds(new: bool) -> float:  # noqa: FBT001
            if random.random() < (ends if busy[0] else begins):
                busy[0] = not busy[0]
            return (size if busy[0] else 1.0) * exp(random.gauss(0, 0.02)) * (1 + change * new)

        return seconds

    return make


def wandering(deviation: float, steps: float) -> Callable[[Random, float], Step]:
    """First-order autoregressive drift."""

    def make(random: Random, change: float) -> Step:
        keep, level = exp(-1 / steps), [random.gauss(0, deviation)]

        def seconds(new: bool) -> float:  # noqa: FBT001
            level[0] = keep * level[0] + random.gauss(0, deviation * sqrt(1 - keep * keep))
            return exp(level[0] + random.gauss(0, 0.02)) * (1 + change * new)

        return seconds

    return make


def settling(steps: int, times: float, *, once: bool = False, both: bool = False) -> Callable[[Random, float], Step]:
    """The first steps after a change take `times` as long: once only, or after each change; of both arms or one."""

    def make(random: Random, change: float) -> Step:
        state = {"arm": False, "since": 10**6, "seen": 0}

        def seconds(new: bool) -> float:  # noqa: FBT001
            state["since"] = 0 if new != state["arm"] else state["since"] + 1
            state["arm"] = new
            state["seen"] += new
            is_cold = state["seen"] <= steps if once else state["since"] < steps
            slow = times if is_cold and (new or both) else 1.0
            return slow * exp(random.gauss(0, 0.02)) * (1 + change * new)

        return seconds

    return make


def late(after: int, before: float) -> Callable[[Random, float], Step]:
    """A step of the candidate takes `before` until it has run `after` steps in a row, then 1 + `change`."""

    def make(random: Random, change: float) -> Step:
        since = [0]

        def seconds(new: bool) -> float:  # noqa: FBT001
            since[0] = since[0] + 1 if new else 0
            factor = 1.0 if not new else before if since[0] <= after else 1 + change
            return factor * exp(random.gauss(0, 0.02))

        return seconds

    return make


def delayed(lag: int) -> Callable[[Random, float], Step]:
    """A step takes the time of the arm some steps ago."""

    def make(random: Random, change: float) -> Step:
        arms = [False] * lag

        def seconds(new: bool) -> float:  # noqa: FBT001
            arms.append(new)
            return exp(random.gauss(0, 0.02)) * (1 + change * arms.pop(0))

        return seconds

    return make


def unsynchronised(every: int) -> Callable[[Random, float], Step]:
    """Steps take a fifth of their time; every so many, one waits for what the device has not done yet."""

    def make(random: Random, change: float) -> Step:
        state = [0.0, random.randrange(every)]

        def seconds(new: bool) -> float:  # noqa: FBT001
            state[0] += 0.8 * exp(random.gauss(0, 0.02)) * (1 + change * new / 0.8)
            state[1] += 1
            debt = 0.0
            if state[1] % every == 0:
                debt, state[0] = state[0], 0.0
            return 0.2 + debt

        return seconds

    return make


def rhythm(deviation: float, day: int) -> Callable[[Random, float], Step]:
    """Log-normal times on a level that follows the hours of a day of some steps, with a jump at each end of work."""

    def make(random: Random, change: float) -> Step:
        step = [random.randrange(day)]

        def seconds(new: bool) -> float:  # noqa: FBT001
            step[0] += 1
            hour = 24 * (step[0] % day) / day
            level = 1 + 0.12 * sin(pi * hour / 12) ** 2 + (0.06 if 9 <= hour < 17 else 0.0)
            return level * exp(random.gauss(-deviation * deviation / 2, deviation)) * (1 + change * new)

        return seconds

    return make


def tenant(size: float, shape: float) -> Callable[[Random, float], Step]:
    """A neighbour works and rests for times of a Pareto distribution, so that busy times cluster at every scale."""

    def make(random: Random, change: float) -> Step:
        state = [0.0, 0.0]

        def seconds(new: bool) -> float:  # noqa: FBT001
            if state[1] <= 0:
                state[:] = [1 - state[0], min(5000.0, (4.0 if state[0] else 16.0) * random.paretovariate(shape))]
            state[1] -= 1
            return (size if state[0] else 1.0) * exp(random.gauss(0, 0.03)) * (1 + change * new)

        return seconds

    return make


def clocks(levels: tuple[float, ...], dwell: float) -> Callable[[Random, float], Step]:
    """The clock has some levels, and stays on one for some steps on average, whatever arm runs."""

    def make(random: Random, change: float) -> Step:
        state = [random.choice(levels)]

        def seconds(new: bool) -> float:  # noqa: FBT001
            if random.random() < 1 / dwell:
                state[0] = random.choice(levels)
            return state[0] * exp(random.gauss(0, 0.01)) * (1 + change * new)

        return seconds

    return make


def warming(stages: tuple[tuple[int, float], ...]) -> Callable[[Random, float], Step]:
    """After each change of the arm, caches become warm in stages: the steps up to a number take some times as long."""

    def make(random: Random, change: float) -> Step:
        state = {"arm": False, "since": 10**6}

        def seconds(new: bool) -> float:  # noqa: FBT001
            state["since"] = 0 if new != state["arm"] else state["since"] + 1
            state["arm"] = new
            cold = next((factor for until, factor in stages if state["since"] < until), 1.0)
            return cold * exp(random.gauss(0, 0.02)) * (1 + change * new)

        return seconds

    return make


def pareto(rate: float, shape: float, longest: float, new_rate: float | None = None) -> Callable[[Random, float], Step]:
    """One step in 1 / `rate` takes Pareto's times as long, at most `longest` times; with `new_rate` other ones.

    A candidate with another rate has the mean of the kept value, times 1 + `change`: its usual steps are faster.
    """
    # The mean of a Pareto variable that is cut at `longest`.
    mean_long = float(shape - longest ** (1 - shape)) / (shape - 1)

    def make(random: Random, change: float) -> Step:
        rates = (rate, rate if new_rate is None else new_rate)
        means = [1 + share * (mean_long - 1) for share in rates]

        def seconds(new: bool) -> float:  # noqa: FBT001
            times = min(longest, random.paretovariate(shape)) if random.random() < rates[new] else 1.0
            return times * exp(random.gauss(0, 0.02)) * means[0] / means[new] * (1 + change * new)

        return seconds

    return make


def _periodic(period: int) -> Callable[[Random, float], Step]:
    return _level(lambda step, _: 1.1 if step % period == 0 else 1.0)


NOISES: Final[dict[str, Callable[[Random, float], Step]]] = {
    "plain": jitter(0.02),
    "sigma10": jitter(0.10),
    "drift": wandering(0.05, 200),
    "slower": _level(lambda step, _: exp(0.0002 * min(step, 6000))),
    **{f"period{period}": _periodic(period) for period in (2, 5, 6, 7, 12)},
    "throttle": _level(lambda step, _: 1.3 if step // 150 % 3 == 0 else 1.0),
    "gc": _level(lambda step, _: 3.0 if step % 50 == 0 else 1.0),
    "bimodal": _level(lambda _, random: 2.0 if random.random() < 0.2 else 1.0),
    "burst": bursts(1.5, 0.02, 0.1),
}
OTHERS: Final[dict[str, Callable[[Random, float], Step]]] = {
    "rhythm": rhythm(0.08, 3000),
    "tenant": tenant(1.4, 1.2),
    "clocks": clocks((1.0, 1.18), 40),
    "warming": warming(((2, 1.4), (5, 1.2), (12, 1.1))),
    "pareto": pareto(0.1, 1.8, 6.0),
}
"""Noises for which no limit of the judge was chosen."""
LATE_HARM: Final = 200

CELLS: Final[dict[str, Cell]] = {
    # kept though slower in the mean: the promise
    "tail30": Cell(0.94 * (1 + 5 / 30) - 1, tail(0.94, 1 / 30, 6)),
    "tail12": Cell(0.90 * (1 + 3 / 12) - 1, tail(0.90, 1 / 12, 4)),
    "tail100": Cell(0.0, tail(1 / 1.05, 1 / 100, 6)),
    "tail20": Cell(0.0, tail(1 / 1.25, 1 / 20, 6)),
    "tail200": Cell(0.0, tail(1 / 1.025, 1 / 200, 6)),
    "late20_harm": Cell(0.10, late(20, 0.95)),
    "late200_harm": Cell(0.10, late(LATE_HARM, 0.95)),
    **{f"{name}_0": Cell(0.0, make) for name, make in NOISES.items()},
    **{f"{name}_0": Cell(0.0, make) for name, make in OTHERS.items()},
    "pareto_rate_0": Cell(0.0, pareto(0.05, 1.8, 6.0, 0.12)),
    "sigma25_0": Cell(0.0, jitter(0.25)),
    "tails_both_0": Cell(0.0, tail(1.0, 1 / 30, 6, 1 / 30)),
    # found
    **{f"{name}_5": Cell(-0.05, make) for name, make in NOISES.items() if name not in ("bimodal", "burst")},
    **{f"{name}_5": Cell(-0.05, OTHERS[name]) for name in ("rhythm", "clocks", "warming")},
    **{f"{name}_10": Cell(-0.10, OTHERS[name]) for name in ("tenant", "pareto")},
    "sigma25_10": Cell(-0.10, jitter(0.25)),
    "burst_10": Cell(-0.10, bursts(1.5, 0.02, 0.1)),
    "bimodal_10": Cell(-0.10, NOISES["bimodal"]),
    "tails_both_20": Cell(-0.20, tail(0.8, 1 / 30, 6, 1 / 30)),
    # settling
    "compile3_5": Cell(-0.05, settling(3, 20, once=True)),
    "compile20_5": Cell(-0.05, settling(20, 3, once=True)),
    "cold3_both_5": Cell(-0.05, settling(3, 1.5, both=True)),
    "cold3_new_5": Cell(-0.05, settling(3, 1.5)),
    "cold20_new_5": Cell(-0.05, settling(20, 1.3)),
    "lag2_5": Cell(-0.05, delayed(2)),
    "lag8_5": Cell(-0.05, delayed(8)),
    "debt10_5": Cell(-0.05, unsynchronised(10)),
    "late20_5": Cell(-0.05, late(20, 1.0)),
}


LAST_STEPS: Final = 512
"""Steps at the end whose majority is in force: a check of a kept value runs the one before it for 32 steps."""


class Ended(NamedTuple):
    """A trial: its verdict (`open` without a verdict), steps until then, mean time, whether the candidate is in force."""

    decision: str
    steps: int
    mean: float
    in_force: bool


def run_program(
    make: Callable[[Random, float], Step], change: float, seed: int, steps: int, share: float | None = None
) -> Ended:
    """Run a program of some steps with a probe that searches a space of two values.

    Args:
        make: Maker of its steps.
        change: True change of the mean time.
        seed: Seed of everything random.
        steps: Steps of the program.
        share: Share of the time that trials may cost; None for that of the process, 1 %.
    """
    seconds = make(Random(seed), change)
    _now[0] = began = 1000.0
    probe = Probe(ProbeSettings("cells", rank=str(seed)), {})
    try:
        space = probe.space("value", {"value": [0, 1]}, start={"value": 0}, share=share, terms=SpaceTerms(per="step"))
        decision, ended_at = "open", steps
        last: deque[bool] = deque(maxlen=LAST_STEPS)
        for step in range(steps):
            last.append(bool(space.value))
            _now[0] += 0.01 * seconds(last[-1])
            probe.step(items=1)
            if step % 64 == 0 and decision == "open":
                outcomes = [outcome for outcome in probe.outcomes if outcome.decision]
                if outcomes:
                    decision, ended_at = f"{outcomes[-1].decision}", step
        decision = ([outcome.decision for outcome in probe.outcomes if outcome.decision] or ["open"])[-1]
        return Ended(str(decision), ended_at, (_now[0] - began) / (0.01 * steps), sum(last) > len(last) / 2)
    finally:
        probe.abandon()


def run_direct(make: Callable[[Random, float], Step], change: float, seed: int, steps: int) -> Ended:
    """Run an experiment alone."""
    seconds = make(Random(seed), change)
    experiment = Experiment(seed=seed)
    total = 0.0
    for step in range(1, steps):
        arm = experiment.next_arm()
        took = seconds(arm is Arm.CANDIDATE)
        total += took
        experiment.record(arm, took)
        if verdict := experiment.verdict():
            return Ended(verdict.decision.value, step, total / step, verdict.decision is Decision.KEPT)
    return Ended("open", steps, total / steps, in_force=False)


class ExampleRun(NamedTuple):
    """A run of the example.

    Attributes:
        decision: The search's verdict, such as `kept`; `open` if the run ended before it.
        seconds: Time by the clock until the verdict.
        processor_seconds: Processor time until the verdict.
        cost_ratio: Share of the time that trials cost.
        over_best: Time of a call with the kept configuration over that with the best configuration.
    """

    decision: str
    seconds: float
    processor_seconds: float
    cost_ratio: float
    over_best: float


def run_example(seed: int, seconds: float, others: float) -> ExampleRun:
    """Run the documented example: a decorated function of 5 ms with a check and 512 configurations.

    Args:
        seed: Seed of everything random.
        seconds: Time by the clock after which it ends without a decision.
        others: Other threads that run on the same core.
    """
    random = Random(seed)
    axes = {name: [2**power for power in range(8)] for name in ("bx", "by", "unroll")}
    best = {name: random.choice(values) for name, values in axes.items()}

    def factor(c: Any) -> float:
        distances = [abs(c[name].bit_length() - best[name].bit_length()) for name in axes]
        return float(1 + 0.04 * distances[0] + 0.03 * distances[1] + 0.02 * distances[2])

    _now[0], _searched[0] = 1000.0, 1.0
    _core.share(others, seed, _used())
    probe = Probe(ProbeSettings("example", rank=str(seed)), {})
    began, began_used = time.perf_counter(), _used()
    try:
        space = probe.space("conv", axes, start={"bx": 8, "by": 8, "unroll": 8}, check=close(rtol=1e-3))

        def call(c: Any) -> float:
            _now[0] += 0.005 * factor(c) * exp(random.gauss(0, 0.02))
            return 1.0

        tuned = space.tuned(call)
        decided: list[str] = []
        while not decided and time.perf_counter() - began < seconds:
            for _ in range(50):
                tuned()
            decided = [
                str(outcome.decision) for outcome in probe.outcomes if outcome.decision not in ("", Decision.FAILED)
            ]
        budget = probe.recorder.budget
        passed = time.perf_counter() - began
        over_best = factor({name: getattr(space, name) for name in axes})
        print(f"seed {seed}: {probe.outcomes[0].reason}")
        cost_ratio = budget.lost_ns / 1e9 / passed
        return ExampleRun((decided or ["open"])[-1], passed, _used() - began_used, cost_ratio, over_best)
    finally:
        probe.abandon()
        _searched[0] = 0.0
        _core.share(0.0, seed, 0.0)


def print_examples(seeds: range, others: float) -> None:
    """Run the example once for each seed, beside other threads on its core, and print a table."""
    print(f"{'seed':>5}{'decision':>14}{'seconds':>9}{'used':>7}{'cost':>8}{'kept/best':>11}")
    for seed in seeds:
        decision, seconds, used, cost, over_best = run_example(seed, 7200.0, others)
        print(f"{seed:>5}{decision:>14}{seconds:>9.0f}{used:>7.0f}{cost:>8.4f}{over_best:>11.3f}", flush=True)


def main() -> int:
    """Run the cells and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts.cells", description=__doc__)
    parser.add_argument("cell", nargs="*", help=f"default: all of {', '.join(CELLS)}")
    parser.add_argument("--trials", type=int, default=100, help="trials of a cell; default: 100")
    parser.add_argument("--steps", type=int, default=20_000, help="steps of a program; default: 20,000")
    parser.add_argument("--share", type=float, help="share of the time that trials may cost; default: 1 %%")
    parser.add_argument("--direct", action="store_true", help="the experiment alone, without search and budget")
    parser.add_argument("--seed", type=int, default=1, help="of everything random; default: 1")
    parser.add_argument("--example", action="store_true", help="the documented example instead: time to its verdict")
    parser.add_argument("--others", type=float, default=0.0, help="threads that share the example's core; default: 0")
    chosen = parser.parse_args()
    if chosen.example:
        print_examples(range(chosen.seed, chosen.seed + chosen.trials), chosen.others)
        return 0
    run = run_direct if chosen.direct else partial(run_program, share=chosen.share)
    print(
        f"{'cell':16}{'change':>8}{'kept':>7}{'95 %':>17}{'back':>7}{'else':>7}{'open':>7}"
        f"{'steps':>8}{'mean':>8}{'in force':>10}"
    )
    for name in chosen.cell or CELLS:
        cell = CELLS[name]
        ended = [
            run(cell.make, cell.change, chosen.seed * 1_000_000 + trial, chosen.steps) for trial in range(chosen.trials)
        ]
        count = Counter(trial.decision for trial in ended)
        kept, back, undecided = count["kept"], count["rolled_back"], count["open"]
        other = len(ended) - kept - back - undecided
        low, high = binomtest(kept, len(ended)).proportion_ci(method="exact")
        interval = f"({low:.4f}-{high:.4f})"
        shares = f"{kept / len(ended):>7.3f}{interval:>17}" + "".join(
            f"{number / len(ended):>7.3f}" for number in (back, other, undecided)
        )
        in_force = sum(trial.in_force for trial in ended) / len(ended)
        steps = median(trial.steps for trial in ended)
        mean = fmean(trial.mean for trial in ended)
        print(f"{name:16}{cell.change:>+8.3f}{shares}{steps:>8.0f}{mean:>8.3f}{in_force:>10.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
