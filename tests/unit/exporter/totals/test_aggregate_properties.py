"""Whatever processes, intervals and restarts interleave: no series falls, and all of them add up to the truth."""

import json
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.totals import snapshot
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.frames import Counters, KernelName, KernelRow, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Labels, Process
from kernelcast.wire.kernels import OTHER, kernel_id, label

DEVICE = Device("node1", "GPU-1")
KERNELS = [f"kernel_{letter}" for letter in "abcdefghijkl"]
SECOND_NS = 1_000_000_000

step = st.one_of(
    st.tuples(st.just("launch"), st.integers(0, 3), st.sampled_from(KERNELS), st.integers(0, 10_000_000)),
    st.tuples(st.just("report"), st.integers(0, 3), st.booleans(), st.just(0)),
    st.tuples(st.just("end"), st.integers(0, 3), st.just(0), st.just(0)),
    st.tuples(st.just("tick"), st.just(0), st.just(0), st.just(0)),
    st.tuples(st.just("restart"), st.just(0), st.just(0), st.just(0)),
)


@dataclass
class Program:
    """The real launches of a process, independent of its reports."""

    nonce: str
    totals: dict[str, DurationTotals] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)

    def launch(self, name: str, duration_ns: int) -> None:
        self.totals.setdefault(name, DurationTotals()).observe(duration_ns)
        self.changed.add(name)

    def report(self, *, everything: bool = True, final: bool = False) -> ProcessReport:
        names = sorted(self.totals if everything else self.changed)
        self.changed -= set(names)
        rows = tuple(row(name, self.totals[name]) for name in names)
        copies = sum(totals.count for totals in self.totals.values())
        gaps = DurationTotals()
        for totals in self.totals.values():
            gaps.add(totals)
        return ProcessReport(
            Process("train", self.nonce, SECOND_NS),
            DEVICE,
            tuple(KernelName(kernel_id(name), name) for name in names),
            rows,
            Counters(
                0,
                (("h2d", "", copies, copies, copies),),
                (("stream", copies, 3 * copies),),
                launch_gaps=gaps,
                regions=(("epoch", copies, copies, copies),),
            ),
            {(row.kernel, "one"): VariantRow.of(row.kernel, "one", row.durations) for row in rows},
            final=final,
        )


def row(name: str, totals: DurationTotals) -> KernelRow:
    """Each launch waited 3 ns in the queue, and every second one came from a graph."""
    return KernelRow(kernel_id(name), totals.count, totals, totals.count, 3 * totals.count, totals.count // 2)


class World:
    """Processes, the aggregator that adds them up, and its values so far."""

    def __init__(self, max_kernels: int | None) -> None:
        self.max_kernels = max_kernels
        self.aggregator = self.start()
        self.processes = [Program(f"p{number}") for number in range(4)]
        self.past: list[Program] = []
        self.shown: dict[tuple[str, Labels], DurationTotals | float] = {}
        self.now_ns = 2 * SECOND_NS

    def start(self) -> Aggregator:
        return Aggregator(max_kernels=self.max_kernels, detailed_kernels=2)

    def launch(self, number: int, name: str, duration_ns: int) -> None:
        self.processes[number].launch(name, duration_ns)

    def report(self, number: int, everything: bool, _: int) -> None:  # noqa: FBT001  one shape for all steps
        self.aggregator.report(self.processes[number].report(everything=everything))

    def end(self, number: int, *_: int) -> None:
        ended = self.processes[number]
        self.aggregator.report(ended.report(final=True))
        self.past.append(ended)
        self.processes[number] = Program(f"p{number}-{len(self.past)}")

    def restart(self, *_: int) -> None:
        self.tick()
        document = json.loads(json.dumps(snapshot.take(self.aggregator)))
        self.aggregator = self.start()
        snapshot.restore(self.aggregator, document)

    def tick(self, *_: int) -> None:
        self.now_ns += SECOND_NS
        for group in self.aggregator.samples(self.now_ns):
            for sample in group.samples:
                if not sample.start_ns:
                    continue
                assert sample.value is not None
                assert sample.start_ns == SECOND_NS
                key = (sample.metric.otlp_name, sample.attributes)
                if key in self.shown:
                    assert not fell(self.shown[key], sample.value), f"{key} fell from {self.shown[key]}"
                self.shown[key] = sample.value
        assert self.max_kernels is None or len(self.launches() - Counter({OTHER: 10**9})) <= self.max_kernels

    def launches(self) -> Counter[str]:
        name = kernel.LAUNCHES.otlp_name
        return Counter({dict(key[1])["kernel"]: int(str(v)) for key, v in self.shown.items() if key[0] == name})

    def total(self, name: str) -> float:
        return sum(value for key, value in self.shown.items() if key[0] == name and isinstance(value, int | float))

    def gpu_time_ns(self) -> int:
        return self.histogram(kernel.DURATION.otlp_name).sum_ns

    def histogram(self, name: str) -> DurationTotals:
        found = DurationTotals()
        for key, value in self.shown.items():
            if key[0] == name and isinstance(value, DurationTotals):
                found.add(value)
        return found

    def truth(self) -> dict[str, DurationTotals]:
        truth: dict[str, DurationTotals] = {}
        for program in [*self.processes, *self.past]:
            for name, totals in program.totals.items():
                truth.setdefault(name, DurationTotals()).add(totals)
        return truth


def fell(before: DurationTotals | float, now: DurationTotals | float) -> bool:
    if isinstance(before, DurationTotals) and isinstance(now, DurationTotals):
        buckets = any(now.buckets.get(index, 0) < count for index, count in before.buckets.items())
        return buckets or now.count < before.count or now.sum_ns < before.sum_ns or now.zero_count < before.zero_count
    assert not isinstance(before, DurationTotals)
    assert not isinstance(now, DurationTotals)
    return now < before


def play(max_kernels: int | None, steps: list[tuple[str, int, str, int]]) -> World:
    world = World(max_kernels)
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    for number in range(len(world.processes)):
        world.report(number, True, 0)
    world.tick()
    return world


@given(st.lists(step, max_size=40), st.integers(0, 6))
def test_with_a_cap_the_series_rise_and_add_up_to_the_truth(
    steps: list[tuple[str, int, str, int]], max_kernels: int
) -> None:
    world = play(max_kernels, steps)
    truth = world.truth()
    launched = sum(totals.count for totals in truth.values())
    assert world.launches().total() == launched
    assert world.gpu_time_ns() == sum(totals.sum_ns for totals in truth.values())
    assert world.total(kernel.MEMCPY_OPERATIONS.otlp_name) == launched
    assert world.total(kernel.SYNC_CALLS.otlp_name) == launched
    assert world.total(kernel.REGION_LAUNCHES.otlp_name) == launched
    assert world.total(kernel.QUEUE_DELAYS.otlp_name) == launched
    assert round(world.total(kernel.QUEUE_DELAY.otlp_name) * SECOND_NS) == 3 * launched
    processes = [*world.processes, *world.past]
    from_graphs = sum(totals.count // 2 for program in processes for totals in program.totals.values())
    assert world.total(kernel.GRAPH_LAUNCHES.otlp_name) == from_graphs
    gaps = DurationTotals()
    for totals in truth.values():
        gaps.add(totals)
    assert world.histogram(kernel.LAUNCH_GAP.otlp_name) == gaps
    assert world.aggregator.counts.fallen == 0
    for name, totals in truth.items():
        assert world.launches()[label(name)] <= totals.count


@given(st.lists(step, max_size=40))
def test_without_a_cap_every_kernel_equals_the_truth(steps: list[tuple[str, int, str, int]]) -> None:
    world = play(None, steps)
    truth = world.truth()
    assert world.launches() == Counter({label(name): totals.count for name, totals in truth.items()})
    assert world.total(kernel.VARIANT_LAUNCHES.otlp_name) == sum(totals.count for totals in truth.values())
    for (name, attributes), value in world.shown.items():
        if name == kernel.DURATION.otlp_name and isinstance(value, DurationTotals):
            expected = next(t for known, t in truth.items() if label(known) == dict(attributes)["kernel"])
            assert (value.count, value.sum_ns) == (expected.count, expected.sum_ns)
            assert value.buckets in ({}, expected.buckets)
