"""Peers of the search, as ask and tell: random, plain local, genetic and memetic search, and Kernel Tuner's newest.

Each of the first four is written as a generator that yields configurations and receives their costs; a failing one
costs infinity. None asks for a configuration twice. Kernel Tuner's strategies are its own code.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from math import inf
from random import Random

from kernelcast.tuning.search import Search
from kernelcast.tuning.search.kernel_tuner_search import KernelTunerSearch
from kernelcast.tuning.space import Space

Costs = Generator[int, float, None]
POPULATION = 20
"""Configurations of a generation, as Kernel Tuner's genetic algorithm has."""
MUTATION = 0.1
"""Probability that a parameter of a child gets a random value."""


class Peer:
    """A peer as the campaign uses it."""

    def __init__(self, steps: Costs, start: int) -> None:
        self._steps = steps
        self._next = next(steps, None)
        self._known = {start}

    def ask(self) -> int | None:
        """Return the next configuration."""
        return self._next

    def tell(self, ordinal: int, cost: float | None) -> None:
        """Add a cost."""
        self._known.add(ordinal)
        if ordinal == self._next:
            try:
                self._next = self._steps.send(inf if cost is None else cost)
            except StopIteration:
                self._next = None


class Memory:
    """Costs of configurations, each measured once."""

    def __init__(self, space: Space, random: Random, start_cost: float) -> None:
        self.space = space
        self.random = random
        self.costs = {space.start: start_cost}

    def visit(self, ordinal: int) -> Generator[int, float, float]:
        """Return the cost of a configuration; measure it if that was not done."""
        if ordinal not in self.costs:
            self.costs[ordinal] = yield ordinal
        return self.costs[ordinal]

    def fresh(self) -> int | None:
        """Return a random configuration that was not measured."""
        ordinals = self.space.ordinals
        for _ in range(100):
            ordinal = ordinals[self.random.randrange(len(ordinals))]
            if ordinal not in self.costs:
                return ordinal
        return next((one for one in ordinals if one not in self.costs), None)


def adjacent(space: Space, ordinal: int) -> list[int]:
    """Return the valid configurations one step away in one parameter."""
    steps = [
        ordinal + step * stride
        for stride, count in zip(space.strides, space.counts, strict=True)
        for step in (-1, 1)
        if 0 <= ordinal // stride % count + step < count
    ]
    return [one for one in steps if one in space]


def random_search(memory: Memory) -> Costs:
    """Configurations at random."""
    while (ordinal := memory.fresh()) is not None:
        yield from memory.visit(ordinal)


def local_search(memory: Memory) -> Costs:
    """First improvement among adjacent configurations in random order; starts again at random from a local optimum."""
    current: int | None = memory.space.start
    while current is not None:
        near = adjacent(memory.space, current)
        memory.random.shuffle(near)
        cost = yield from memory.visit(current)
        for ordinal in near:
            if (yield from memory.visit(ordinal)) < cost:
                current = ordinal
                break
        else:
            current = memory.fresh()


def genetic_search(memory: Memory, *, memetic: bool = False) -> Costs:
    """A genetic algorithm; memetic: with steps to adjacent configurations of the best two in each generation."""
    population = [memory.space.start]
    while len(population) < POPULATION and (ordinal := memory.fresh()) is not None:
        yield from memory.visit(ordinal)
        population.append(ordinal)
    while len(memory.costs) < len(memory.space):
        before = len(memory.costs)
        population.sort(key=memory.costs.__getitem__)
        if memetic:
            for parent in population[:2]:
                near = [one for one in adjacent(memory.space, parent) if one not in memory.costs]
                memory.random.shuffle(near)
                for ordinal in near[:3]:
                    yield from memory.visit(ordinal)
                    population.append(ordinal)
            population = sorted(set(population), key=memory.costs.__getitem__)[:POPULATION]
        children = [child for child in _children(memory, population) if child is not None]
        for child in children:
            yield from memory.visit(child)
        population = sorted({*population, *children}, key=memory.costs.__getitem__)[:POPULATION]
        if len(memory.costs) == before:
            ordinal = memory.fresh()
            if ordinal is None:
                return
            yield from memory.visit(ordinal)
            population[-1] = ordinal


def _children(memory: Memory, population: Sequence[int]) -> Iterator[int | None]:
    """Children by tournaments of two, uniform crossover and mutation; an invalid or known one becomes a neighbour."""
    space, random = memory.space, memory.random
    for _ in range(POPULATION - 2):
        parents = [space.places(population[min(random.randrange(len(population)) for _ in range(2))]) for _ in range(2)]
        places = [random.choice(pair) for pair in zip(*parents, strict=True)]
        for column, count in enumerate(space.counts):
            if random.random() < MUTATION:
                places[column] = random.randrange(count)
        ordinal = sum(stride * place for stride, place in zip(space.strides, places, strict=True))
        if ordinal not in space or ordinal in memory.costs:
            near = [one for one in space.neighbours(ordinal) if one not in memory.costs]
            yield random.choice(near) if near else memory.fresh()
        else:
            yield ordinal


Start = Callable[[Memory], Costs]
PEERS: dict[str, Start] = {
    "random": random_search,
    "genetic": genetic_search,
    "local": local_search,
    "memetic": lambda memory: genetic_search(memory, memetic=True),
}


KERNEL_TUNER = ("hybrid_vndx", "adaptive_tabu_greywolf")
"""Strategies of Kernel Tuner 1.5, generated by a language model (arXiv 2510.17899)."""


def peer(space: Space, name: str, *, seed: int, budget: int) -> Search:
    """Return a peer by its name.

    Raises:
        ConfigurationError: Kernel Tuner is not installed, and it is one of its strategies.
    """
    if name in KERNEL_TUNER:
        return KernelTunerSearch(space, seed=seed, strategy=name, options={"budget": budget})
    return Peers(space, name, seed)


class Peers:
    """A peer that begins when the start's cost is known."""

    def __init__(self, space: Space, name: str, seed: int) -> None:
        self._space = space
        self._name = name
        self._random = Random(f"{name} {seed}")
        self._peer: Peer | None = None

    def ask(self) -> int | None:
        """Return the next configuration; the start first."""
        return self._peer.ask() if self._peer else self._space.start

    def tell(self, ordinal: int, cost: float | None) -> None:
        """Add a cost."""
        if self._peer is None:
            memory = Memory(self._space, self._random, inf if cost is None else cost)
            self._peer = Peer(PEERS[self._name](memory), ordinal)
        else:
            self._peer.tell(ordinal, cost)
