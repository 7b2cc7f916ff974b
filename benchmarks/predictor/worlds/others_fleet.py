"""A fleet of nodes of 8 GPUs, written from the metrics page and public sources alone, like the worlds beside it.

The GPUs of a node share its load, its air, its program and its restarts; each has its own card, place and noise. Faults
are of single GPUs, placed at random. One series is made at a time, on a grid of five minutes.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from benchmarks.predictor.worlds.others import (
    DAY,
    HOUR,
    LEAST_WARNING_S,
    TOTALS_MIB,
    Card,
    Clock,
    Draft,
    Flags,
    Floats,
    Memory,
    Rng,
    Shift,
    allocator,
    cache_of,
    draw_card,
    draw_clock,
    gaps,
    growth,
    jobs,
    kernel,
    loaded_moment,
    log_uniform,
    office_shift,
    plateau,
    rollouts,
    room,
    serving,
    sound,
    traffic,
    training,
    wander,
    warm,
    worsened,
)
from benchmarks.predictor.worlds.series import World, WorldSeries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GPUS_OF_NODE = 8
GRID_S = 300.0
KINDS = ("temperature", "memory", "kernel")
RHYTHMS = ("office", "traffic", "training", "jobs", "nights")
# Faults of each kind: hours from the onset to the latest breach, the shortest and the longest.
FAULTS: dict[str, dict[str, tuple[float, float]]] = {
    "temperature": {"fan_dies": (1.0, 10.0), "fan_clogs": (30.0, 200.0), "paste_ages": (60.0, 300.0)},
    "memory": {"leak_of_hours": (1.5, 20.0), "leak_of_days": (24.0, 200.0)},
    "kernel": {"clocks_creep_down": (3.0, 120.0), "clocks_step_down": (0.0, 0.0)},
}


@dataclass(frozen=True, slots=True)
class Node:
    """What the GPUs of a node share: load, air about its mean in degrees, card, MiB a card, margin, program's seed."""

    clock: Clock
    rhythm: str
    load: Floats
    air: Floats
    card: Card
    total: float
    margin: float
    program: int
    missing: Flags


def rhythm_of(rng: Rng, clock: Clock, rhythm: str) -> Floats:
    """Load of a node, 0 to 1, of one of RHYTHMS."""
    if rhythm == "office":
        return plateau(rng, clock, office_shift(rng))
    if rhythm == "traffic":
        return traffic(rng, clock)
    if rhythm == "jobs":
        return jobs(rng, clock, 1200.0, 6.0 * HOUR)
    load = training(rng, clock)
    if rhythm == "training":
        return load
    start = rng.uniform(19.0, 26.0)
    night = Shift(start, start + rng.uniform(3.0, 8.0), rng.uniform(0.0, 0.5), 0.0, frozenset(range(7)))
    return load * plateau(rng, clock, night)


def draw_node(rng: Rng, clock: Clock, rhythm: str) -> Node:
    """A node with a rhythm; a third of the nodes is restarted once or twice, without samples for up to an hour."""
    load = rhythm_of(rng, clock, rhythm)
    missing = gaps(rng, clock, float(rng.choice([0.0, 0.001, 0.005])), 2.0 * GRID_S)
    if rng.random() < 0.33:
        for at in rng.uniform(0.05, 0.98, int(rng.integers(1, 3))) * clock.span:
            away = (clock.elapsed >= at) & (clock.elapsed < at + log_uniform(rng, 400.0, HOUR))
            load = np.where(away, 0.0, load)
            missing |= away
    air = room(rng, clock)
    if rng.random() < 0.3:
        first, last = np.sort(rng.uniform(0.0, 1.0, 2))
        season = np.clip((clock.elapsed / clock.span - first) / max(last - first, 0.05), 0.0, 1.0)
        air = air + rng.uniform(-1.5, 1.5) * season
    total = float(rng.choice(TOTALS_MIB[2:]))
    program = int(rng.integers(0, 2**62))
    return Node(clock, rhythm, load, air, draw_card(rng), total, rng.uniform(6.5, 14.0), program, missing)


def span_of(rng: Rng, node: Node, hours: tuple[float, float]) -> tuple[float, float]:
    """Onset and latest breach, Unix seconds, of a fault that takes so many hours; anywhere from a few hours on."""
    clock = node.clock
    length = min(log_uniform(rng, max(hours[0], 1.0), max(hours[1], 1.0)) * HOUR, 0.7 * clock.span)
    onset = float(clock.times[0]) + rng.uniform(min(4.0 * HOUR, 0.1 * clock.span), 0.99 * clock.span - length)
    return onset, loaded_moment(rng, clock, node.load, onset + 0.6 * length, onset + length)


def temperature_of(rng: Rng, node: Node, fault: str | None) -> WorldSeries:
    """A GPU's temperature with its power: the node's load and air, its own card, place and share of the work."""
    clock, card = node.clock, node.card
    own = Card(
        card.idle * rng.uniform(0.93, 1.07),
        card.full * rng.uniform(0.96, 1.02),
        card.resistance * rng.uniform(0.93, 1.07),
        card.sink_s,
        card.instant,
        card.limit,
    )
    load = node.load * np.clip(rng.uniform(0.94, 1.0) + wander(rng, clock, 2.0 * HOUR, 0.01), 0.0, 1.0)
    margin = node.margin + rng.uniform(-4.0, 4.0)
    hot = warm(rng, clock, load, air=node.air, margin=margin, card=own)
    hot.draft.missing[:] |= node.missing
    if fault is None:
        return hot.healthy()
    onset, until = span_of(rng, node, FAULTS["temperature"][fault])
    severity = growth(clock, onset, DAY, rng.uniform(0.7, 1.8))
    # A failing fan or filter costs air at all loads; paste that ages costs by the watts above idle alone.
    heat = hot.heat if fault != "paste_ages" else np.clip(hot.heat - np.percentile(hot.heat, 2.0), 0.0, None)
    return hot.faulty(heat * severity, onset, until)


def memory_of(rng: Rng, node: Node, fault: str | None) -> WorldSeries:
    """A GPU's memory: the program's, the same on all GPUs of the node but for some MiB, by the node's rhythm."""
    clock, shared = node.clock, np.random.default_rng(node.program)
    if node.rhythm == "traffic" and node.program % 2:
        draft = cache_of(shared, clock, node.load)
        memory = None
    else:
        memory = serving(shared, clock, 0.015, node.total)
        if node.rhythm != "traffic":
            memory = allocator(shared, clock, node.total)
        draft = memory.draft
    # A smaller rank, never a larger one: the limit's distance stays.
    less = rng.uniform(0.0, 0.004) * draft.limit
    values = np.clip(np.floor(draft.values - less), 0.0, None)
    own = Draft(draft.metric, clock, values, draft.limit, draft.companions, draft.missing | node.missing)
    if fault is None:
        return own.series()
    onset, until = span_of(rng, node, FAULTS["memory"][fault])
    severity = growth(clock, onset, DAY)
    if rng.random() < 0.5:
        severity = np.cumsum(np.where(clock.times > onset, node.load, 0.0)) * GRID_S / DAY
    if memory is None:
        return own.series(np.minimum(worsened(own, severity, onset, until), 1.02 * own.limit), onset)
    return Memory(own, memory.total, memory.idle, memory.block).faulty(rng, severity, onset, until)


def kernel_of(rng: Rng, node: Node, fault: str | None) -> WorldSeries:
    """A kernel's mean duration in seconds: the program's releases and neighbours, and the GPU's own noise."""
    clock, shared = node.clock, np.random.default_rng(node.program + 1)
    slow = rollouts(shared, clock)
    if shared.random() < 0.4:
        neighbour = jobs(shared, clock, HOUR, 8.0 * HOUR) > 0.0
        slow = slow + neighbour * shared.uniform(0.03, 0.15)
    draft = kernel(shared, clock, slow)
    values = draft.values * rng.uniform(0.97, 1.0) * (1.0 + wander(rng, clock, HOUR, 0.002))
    own = Draft(draft.metric, clock, values, draft.limit, {}, draft.missing | node.missing)
    if fault is None:
        return own.series()
    onset, until = span_of(rng, node, FAULTS["kernel"][fault])
    if fault == "clocks_step_down":
        share = rng.uniform(1.05, 1.7)  # a power brake or a lost phase: clocks are held down from one moment on
        gain = (own.limit - float(values.min())) * share
        return own.series(values + np.where(clock.times >= onset, gain, 0.0), onset)
    return own.series(worsened(own, values * growth(clock, onset, DAY, rng.uniform(0.8, 1.5)), onset, until), onset)


SERIES_OF: dict[str, Callable[[Rng, Node, str | None], WorldSeries]] = {
    "temperature": temperature_of,
    "memory": memory_of,
    "kernel": kernel_of,
}


def series_of(rng: Rng, node: Node, kind: str, fault: str | None) -> WorldSeries:
    """A series of a node's GPU, drawn again where it does not hold what its world promises."""
    least = 0.0 if fault == "clocks_step_down" else LEAST_WARNING_S
    for _ in range(100):
        series = SERIES_OF[kind](rng, node, fault)
        if sound(series, least):
            return series
    raise RuntimeError(f"no sound draw of {kind}, {node.rhythm}, {fault}, in 100")


def fleet_world(rhythm: str, kind: str, fault: str | None) -> World:
    """The world of a fleet's series; drawn alone, it is a GPU of a node of its own."""

    def make(rng: Rng, days: float) -> WorldSeries:
        clock = draw_clock(rng, days, grids=(GRID_S,))
        return series_of(rng, draw_node(rng, clock, rhythm), kind, fault)

    name = f"fleet_{rhythm}_{kind}" + (f"_{fault}" if fault else "")
    what = "is healthy" if fault is None else f"has the fault {fault}"
    return World(name, fault is None, make, f"The {kind} of a GPU that {what}, in a node with the rhythm {rhythm}.")


FLEET_WORLDS: dict[tuple[str, str, str | None], World] = {
    (rhythm, kind, fault): fleet_world(rhythm, kind, fault)
    for rhythm in RHYTHMS
    for kind in KINDS
    for fault in (None, *FAULTS[kind])
}


def place_faults(rng: Rng, gpus: int, wanted: int, probed: Flags) -> dict[tuple[int, str], str]:
    """Faults by the number of their GPU and the kind of its series: at most one for each; `probed` is by node."""
    placed: dict[tuple[int, str], str] = {}
    for _ in range(wanted):
        for _ in range(100):
            gpu = int(rng.integers(0, gpus))
            kind = str(rng.choice(list(KINDS), p=[0.45, 0.35, 0.2]))
            if (gpu, kind) not in placed and (kind != "kernel" or probed[gpu // GPUS_OF_NODE]):
                placed[gpu, kind] = str(rng.choice(list(FAULTS[kind])))
                break
    return placed


def fleet(rng: Rng, gpus: int, days: float, faults_per_day: float) -> Iterator[tuple[str, str, World, WorldSeries]]:
    """Each series of a fleet, with its node's name, its GPU's UUID and its world: one at a time.

    `faults_per_day` is of the whole fleet, on average; all series have the same times. Two of three nodes run a program
    with a probe, and so have a kernel's series beside temperature and memory.
    """
    clock = draw_clock(rng, days, grids=(GRID_S,))
    nodes = -(-gpus // GPUS_OF_NODE)
    probed = rng.random(nodes) < 0.67
    placed = place_faults(rng, gpus, int(rng.poisson(faults_per_day * days)), probed)
    for number in range(nodes):
        own = np.random.default_rng(rng.integers(0, 2**62))
        rhythm = str(own.choice(list(RHYTHMS), p=[0.2, 0.25, 0.25, 0.2, 0.1]))
        node = draw_node(own, clock, rhythm)
        for gpu in range(number * GPUS_OF_NODE, min(gpus, (number + 1) * GPUS_OF_NODE)):
            name = f"GPU-{uuid.UUID(bytes=own.bytes(16), version=4)}"
            for kind in KINDS if probed[number] else KINDS[:2]:
                fault = placed.get((gpu, kind))
                series = series_of(own, node, kind, fault)
                yield f"gpu-node-{number:04d}", name, FLEET_WORLDS[rhythm, kind, fault], series
