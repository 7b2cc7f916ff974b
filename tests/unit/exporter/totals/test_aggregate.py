from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kernelcast.columnar import Sample
from kernelcast.exporter.delivery.publish import SamplePublisher
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.totals import aggregate, snapshot
from kernelcast.exporter.totals.aggregate import MAX_ENDED, Aggregator
from kernelcast.exporter.totals.report import ProcessReport, Standing
from kernelcast.wire.catalogue import Metric, kernel
from kernelcast.wire.events import Outcome, OutcomeState
from kernelcast.wire.frames import Counters, KernelName, KernelRow, Status, TunableClaim, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Process, Versions
from kernelcast.wire.kernels import kernel_id, label

SECOND_NS = 1_000_000_000
NOW_NS = 1_000 * SECOND_NS
DEVICE = Device("node1", "GPU-1", model_name="H200")


def process(nonce: str = "a", *, program: str = "train", start_ns: int = 900 * SECOND_NS) -> Process:
    return Process(program, nonce, start_ns)


def row(signature: str, durations_ns: Iterable[int], *, untimed: int = 0) -> KernelRow:
    totals = DurationTotals()
    for duration_ns in durations_ns:
        totals.observe(duration_ns)
    return KernelRow(kernel_id(signature), totals.count + untimed, totals)


def report(
    rows: dict[str, list[int]], *, of: Process | None = None, device: Device = DEVICE, **more: object
) -> ProcessReport:
    names = tuple(KernelName(kernel_id(name), name) for name in rows)
    made = tuple(row(name, durations) for name, durations in rows.items())
    return ProcessReport(of or process(), device, names, made, **more)  # type: ignore[arg-type]


def shown(aggregator: Aggregator, now_ns: int = NOW_NS) -> list[Sample]:
    return [sample for group in aggregator.samples(now_ns) for sample in group.samples]


def values(samples: Iterable[Sample], metric: Metric, by: str = "kernel") -> dict[str, object]:
    return {dict(sample.attributes).get(by, ""): sample.value for sample in samples if sample.metric is metric}


def test_processes_of_one_program_are_one_series_and_an_ended_one_stays_in_it() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [100, 200]}, of=process("a")))
    aggregator.report(report({"gemm": [50]}, of=process("b")))
    aggregator.report(report({"gemm": [100, 200, 300]}, of=process("a"), final=True))
    samples = shown(aggregator)
    assert values(samples, kernel.LAUNCHES) == {label("gemm"): 4}
    duration = values(samples, kernel.DURATION)[label("gemm")]
    assert isinstance(duration, DurationTotals)
    assert (duration.count, duration.sum_ns) == (4, 650)


def test_a_late_report_of_an_ended_process_continues_its_last_totals() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [100]}, final=True))
    aggregator.report(report({"gemm": [100]}))
    aggregator.report(report({"gemm": [100, 100]}, final=True))
    assert values(shown(aggregator), kernel.LAUNCHES) == {label("gemm"): 2}


def test_a_report_of_a_process_that_ended_long_ago_is_ignored_and_counted() -> None:
    aggregator = Aggregator()
    for number in range(MAX_ENDED + 1):
        aggregator.report(report({"gemm": [100]}, of=process(f"p{number}"), final=True))
    aggregator.report(report({"gemm": [100]}, of=process("p0")))
    assert values(shown(aggregator), kernel.LAUNCHES) == {label("gemm"): MAX_ENDED + 1}
    assert aggregator.counts.late == 1


def test_totals_that_fall_within_one_process_are_ignored_and_counted() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [100, 200], "copy": [10]}))
    aggregator.report(report({"gemm": [100], "copy": [10, 10]}))
    assert values(shown(aggregator), kernel.LAUNCHES) == {label("gemm"): 2, label("copy"): 2}
    assert aggregator.counts.fallen == 1


def test_a_bucket_that_falls_while_the_count_rises_is_ignored_too() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [1_000]}))
    aggregator.report(report({"gemm": [2_000_000, 2_000_000]}))
    assert values(shown(aggregator), kernel.LAUNCHES) == {label("gemm"): 1}
    assert aggregator.counts.fallen == 1


def test_a_source_may_go_on_counting_in_the_object_it_reported() -> None:
    aggregator = Aggregator()
    totals = DurationTotals()
    names = (KernelName(1, "gemm"),)
    for _ in range(3):
        totals.observe(100)
        aggregator.report(ProcessReport(process(), DEVICE, names, (KernelRow(1, totals.count, totals),)))
    assert values(shown(aggregator), kernel.LAUNCHES) == {label("gemm"): 3}


def test_samples_do_not_change_after_they_were_handed_out() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [100]}))
    before = values(shown(aggregator), kernel.DURATION)[label("gemm")]
    aggregator.report(report({"gemm": [100, 100]}))
    shown(aggregator)
    assert isinstance(before, DurationTotals)
    assert (before.count, sum(before.buckets.values())) == (1, 1)


def test_kernels_beyond_the_cap_are_summed_as_other_by_class() -> None:
    aggregator = Aggregator(max_kernels=1)
    aggregator.report(report({"gemm": [500], "small": [5], "ncclAllReduce": [7]}))
    launches = {
        (labels["kernel"], labels["kernel_class"]): sample.value
        for sample in shown(aggregator)
        if sample.metric is kernel.LAUNCHES and (labels := dict(sample.attributes))
    }
    assert launches == {(label("gemm"), "compute"): 1, ("other", "compute"): 1, ("other", "collective"): 1}


def test_launches_before_a_kernels_admission_stay_in_other() -> None:
    aggregator = Aggregator(max_kernels=5)
    first = {f"k{number}": [1_000] for number in range(4)} | {"late": [1]}
    aggregator.report(report(first))
    assert values(shown(aggregator), kernel.LAUNCHES)["other"] == 1
    aggregator.report(report(first | {"late": [1, 5_000, 5_000]}))
    launches = values(shown(aggregator), kernel.LAUNCHES)
    assert (launches["other"], launches[label("late")]) == (1, 2)


def test_the_last_slots_wait_for_kernels_that_matter() -> None:
    aggregator = Aggregator(max_kernels=5)
    rows = {"hot": [1_000_000], **{f"tiny{number}": [1] for number in range(9)}}
    aggregator.report(report(rows))
    assert len(values(shown(aggregator), kernel.LAUNCHES)) == 4 + 1
    aggregator.report(report({**rows, "hot2": [900_000]}))
    launches = values(shown(aggregator), kernel.LAUNCHES)
    assert launches[label("hot2")] == 1


def test_without_a_cap_every_kernel_has_its_own_series() -> None:
    aggregator = Aggregator(max_kernels=None)
    names = [f"kernel_{letter}_{number}" for letter in "abcdefgh" for number in range(40)]
    aggregator.report(report({name: [10] for name in names}))
    assert values(shown(aggregator), kernel.LAUNCHES) == {label(name): 1 for name in names}


def test_the_hottest_kernels_travel_with_buckets() -> None:
    aggregator = Aggregator(detailed_kernels=1)
    aggregator.report(report({"hot": [1_000], "cool": [10]}))
    detailed = {
        dict(sample.attributes)["kernel"]: sample.detailed
        for sample in shown(aggregator)
        if sample.metric is kernel.DURATION
    }
    assert detailed == {label("hot"): True, label("cool"): False}


def test_a_kernel_whose_name_has_not_arrived_counts_as_other() -> None:
    aggregator = Aggregator()
    aggregator.report(ProcessReport(process(), DEVICE, (), (row("gemm", [100]),)))
    assert values(shown(aggregator), kernel.LAUNCHES) == {"other": 1}
    aggregator.report(report({"gemm": [100, 200]}))
    assert values(shown(aggregator), kernel.LAUNCHES) == {"other": 1, label("gemm"): 1}


def test_numbers_in_generated_names_do_not_split_a_kernel() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"triton_poi_fused_add_3": [1]}, of=process("a")))
    aggregator.report(report({"triton_poi_fused_add_7": [1]}, of=process("b")))
    assert list(values(shown(aggregator), kernel.LAUNCHES).values()) == [2]


def test_untimed_launches_show_in_the_coverage() -> None:
    aggregator = Aggregator()
    names = (KernelName(kernel_id("gemm"), "gemm"),)
    aggregator.report(ProcessReport(process(), DEVICE, names, (row("gemm", [10], untimed=3),)))
    samples = shown(aggregator)
    assert values(samples, kernel.LAUNCHES) == {label("gemm"): 4}
    assert values(samples, kernel.TIMED_LAUNCHES) == {label("gemm"): 1}
    assert values(samples, kernel.PROBE_COVERAGE) == {"": 0.25}


def test_launches_that_cannot_be_seen_count_against_the_coverage() -> None:
    aggregator = Aggregator()
    names = (KernelName(kernel_id("gemm"), "gemm"),)
    counters = Counters(0, unseen=(("cublas", 3), ("graph", 1)))
    rows = (row("gemm", [10, 10], untimed=2),)
    aggregator.report(ProcessReport(process(), DEVICE, names, rows, counters, version="1"))
    samples = shown(aggregator)
    assert values(samples, kernel.PROBE_UNSEEN, "reason") == {"cublas": 3, "graph": 1}
    assert values(samples, kernel.LAUNCHES) == {label("gemm"): 4}
    assert values(samples, kernel.PROBE_COVERAGE) == {"": 0.25}


def test_time_in_which_nothing_was_measured_counts_against_the_coverage() -> None:
    aggregator = Aggregator()
    names = (KernelName(kernel_id("gemm"), "gemm"),)
    counters = Counters(0, running_ns=10 * SECOND_NS, measured_ns=SECOND_NS, waits_measured_ns=SECOND_NS // 2)
    aggregator.report(ProcessReport(process(), DEVICE, names, (row("gemm", [10]),), counters))
    samples = shown(aggregator)
    assert values(samples, kernel.LAUNCHES) == {label("gemm"): 1}
    times = (kernel.PROBE_RUNNING, kernel.PROBE_MEASURED, kernel.PROBE_WAITS_MEASURED)
    assert [values(samples, row) for row in times] == [{"": 10}, {"": 1}, {"": 0.5}]
    assert values(samples, kernel.PROBE_COVERAGE) == {"": 0.1}


def test_the_cost_is_that_of_the_process_that_measuring_slows_most() -> None:
    aggregator = Aggregator()
    for nonce, cost in (("a", (0.99, 1.0, 1.01)), ("b", (1.02, 1.05, 1.08))):
        status = Status("cupti", "active", cost=cost)
        aggregator.report(report({"gemm": [1]}, of=process(nonce), status=status))
    shown_costs = values(shown(aggregator), kernel.PROBE_COST, "bound")
    assert shown_costs == {"lower": 1.02, "median": 1.05, "upper": 1.08}


def test_a_program_of_which_nothing_can_be_seen_has_a_coverage_of_nought() -> None:
    aggregator = Aggregator()
    aggregator.report(report({}, counters=Counters(0, unseen=(("other_profiler", 5),))))
    assert values(shown(aggregator), kernel.PROBE_COVERAGE) == {"": 0.0}


def test_queue_delays_and_graph_launches_are_shown_where_they_are_known_and_absent_elsewhere() -> None:
    aggregator = Aggregator(max_kernels=2)
    rows = []
    for name, durations, known in (
        ("gemm", [900], (1, SECOND_NS // 2, 0)),
        ("relu", [800], (0, 0, 1)),
        ("tiny", [1], ()),
    ):
        made = row(name, durations)
        rows.append(KernelRow(made.kernel, made.launches, made.durations, *known))
    names = tuple(KernelName(kernel_id(name), name) for name in ("gemm", "relu", "tiny"))
    aggregator.report(ProcessReport(process(), DEVICE, names, tuple(rows)))
    samples = shown(aggregator)
    assert values(samples, kernel.QUEUE_DELAY) == {label("gemm"): 0.5}
    assert values(samples, kernel.QUEUE_DELAYS) == {label("gemm"): 1}
    assert values(samples, kernel.GRAPH_LAUNCHES) == {label("relu"): 1}


def test_a_queue_delay_that_falls_is_ignored_and_counted() -> None:
    aggregator = Aggregator()
    names = (KernelName(kernel_id("gemm"), "gemm"),)
    for delay_ns in (50, 40):
        made = row("gemm", [10])
        rows = (KernelRow(made.kernel, 1, made.durations, 1, delay_ns),)
        aggregator.report(ProcessReport(process(), DEVICE, names, rows))
    assert values(shown(aggregator), kernel.QUEUE_DELAY) == {label("gemm"): 50 / SECOND_NS}
    assert aggregator.counts.fallen == 1


def test_gaps_between_launches_are_one_histogram_of_all_processes() -> None:
    aggregator = Aggregator()
    for nonce, gaps in (("a", [5, 5_000]), ("b", [7])):
        totals = row("gap", gaps).durations
        aggregator.report(report({}, of=process(nonce), counters=Counters(0, launch_gaps=totals)))
    (sample,) = [sample for sample in shown(aggregator) if sample.metric is kernel.LAUNCH_GAP]
    assert sample.value == row("gap", [5, 5_000, 7]).durations
    assert sample.detailed
    before = sample.value
    aggregator.report(report({}, of=process("b"), counters=Counters(0, launch_gaps=row("gap", [7, 9]).durations)))
    shown(aggregator)
    assert before == row("gap", [5, 5_000, 7]).durations


def test_gaps_that_fall_are_ignored_and_counted_and_those_never_reported_are_absent() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [1]}, counters=Counters(0)))
    assert not values(shown(aggregator), kernel.LAUNCH_GAP)
    for gaps in ([5, 6], [5]):
        aggregator.report(report({}, counters=Counters(0, launch_gaps=row("gap", gaps).durations)))
    assert values(shown(aggregator), kernel.LAUNCH_GAP) == {"": row("gap", [5, 6]).durations}
    assert aggregator.counts.fallen == 1


def test_totals_that_no_program_can_reach_are_refused_and_the_nodes_export_continues() -> None:
    aggregator = Aggregator()
    published: list[bytes] = []

    class Producer:
        def send(self, topic: str, *, key: bytes | None, value: bytes | None) -> None:
            assert (topic, key) in (("kernelcast.kernels", b"train"), ("kernelcast.kernels", b"serve"))
            published.append(value or b"")

    huge = 2**63 - 2
    totals = DurationTotals(huge, huge, 0, huge)
    pools = (("device", "used", 2**64 - 1),)
    counters = Counters(0, (("h2d", "", huge, huge, huge),), launch_gaps=totals, pools=pools)
    for nonce in "ab":
        aggregator.report(
            ProcessReport(
                process(nonce),
                DEVICE,
                (KernelName(kernel_id("gemm"), "gemm"),),
                (KernelRow(kernel_id("gemm"), huge, totals),),
                counters,
                {(kernel_id("gemm"), "v"): VariantRow.of(kernel_id("gemm"), "v", totals)},
            )
        )
    aggregator.report(report({"relu": [5]}, of=process("c", program="serve")))
    publisher = SamplePublisher(Producer())
    for group in aggregator.samples(NOW_NS):
        publisher.kernels(group)
    assert publisher.points
    assert aggregator.counts.refused > 0
    assert values(shown(aggregator), kernel.LAUNCHES)[label("gemm")] == huge
    assert values(shown(aggregator), kernel.LAUNCHES)[label("relu")] == 1


def test_regions_add_up_over_processes_and_stay_when_one_ends() -> None:
    aggregator = Aggregator()
    counters = Counters(0, regions=(("forward", 4, SECOND_NS, 2 * SECOND_NS),))
    for nonce in "ab":
        aggregator.report(report({}, of=process(nonce), counters=counters, final=nonce == "a"))
    samples = shown(aggregator)
    assert values(samples, kernel.REGION_LAUNCHES, "region") == {"forward": 8}
    assert values(samples, kernel.REGION_GPU, "region") == {"forward": 2.0}
    assert values(samples, kernel.REGION_WALL, "region") == {"forward": 4.0}


def test_memory_pools_are_summed_over_live_processes_and_go_with_them() -> None:
    aggregator = Aggregator()
    for nonce, used in (("a", 100), ("b", 30)):
        pools = (("device", "used", used), ("device", "limit", 1000))
        aggregator.report(report({}, of=process(nonce), counters=Counters(0, pools=pools)))
    assert values(shown(aggregator), kernel.MEMORY_POOL, "state") == {"used": 130, "limit": 2000}
    aggregator.report(report({}, of=process("a"), counters=Counters(0, pools=(("device", "used", 40),))))
    assert values(shown(aggregator), kernel.MEMORY_POOL, "state") == {"used": 70, "limit": 1000}
    for nonce in "ab":
        aggregator.report(report({}, of=process(nonce), final=True))
    assert not values(shown(aggregator), kernel.MEMORY_POOL)


def test_each_state_that_a_live_process_is_in_is_shown_once_with_its_reason() -> None:
    aggregator = Aggregator()
    for nonce, status in (
        ("a", Status("event", "active", "", 0.5)),
        ("b", Status("event", "active", "", 0.25)),
        ("c", Status("count", "off", "2.1 % of wall time", 0.75)),
    ):
        aggregator.report(report({}, of=process(nonce), status=status))
    samples = shown(aggregator)
    assert values(samples, kernel.PROBE_STATE, "state") == {"active": 1, "off": 1}
    assert values(samples, kernel.PROBE_STATE, "reason") == {"": 1, "2.1 % of wall time": 1}
    assert len([sample for sample in samples if sample.metric is kernel.PROBE_STATE]) == 2
    assert values(samples, kernel.PROBE_SAMPLE) == {"": 0.25}
    aggregator.report(report({}, of=process("b"), final=True))
    aggregator.report(report({}, of=process("c"), status=Status("count", "active", "", 1.0)))
    samples = shown(aggregator)
    assert values(samples, kernel.PROBE_STATE, "state") == {"active": 1}
    assert values(samples, kernel.PROBE_SAMPLE) == {"": 0.5}


def test_states_and_pools_that_ended_are_withdrawn_from_kafka() -> None:
    aggregator = Aggregator()
    published: list[bytes] = []

    class Producer:
        def send(self, topic: str, *, key: bytes | None, value: bytes | None) -> None:
            assert (topic, key) == ("kernelcast.kernels", b"train")
            assert value is not None
            published.append(value)

    publisher = SamplePublisher(Producer())
    counters = Counters(0, pools=(("device", "used", 9),))
    aggregator.report(report({"k": [1]}, counters=counters, status=Status("event", "active"), version="1"))
    aggregator.report(report({"k": [1]}, of=process("b")))
    for group in aggregator.samples(NOW_NS):
        publisher.kernels(group)
    aggregator.report(report({"k": [1]}, counters=counters, final=True))
    published.clear()
    for group in aggregator.samples(NOW_NS + SECOND_NS):
        publisher.kernels(group)
    points = list(ended_points(published))
    assert sorted(points) == [
        "cupy.memory_pool",
        "kernelcast.probe.info",
        "kernelcast.probe.sample",
        "kernelcast.probe.state",
    ]


def ended_points(bodies: list[bytes]) -> Iterator[str]:
    for body in bodies:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                yield from (metric.name for point in metric.gauge.data_points if point.flags & 1)


def test_copies_waits_and_device_time_are_summed_over_processes() -> None:
    aggregator = Aggregator()
    counters = Counters(
        0, (("h2d", "true", 10, 1, SECOND_NS),), (("stream", 3, SECOND_NS // 2),), (("idle", SECOND_NS),)
    )
    for nonce in "ab":
        aggregator.report(report({}, of=process(nonce), counters=counters))
    samples = shown(aggregator)
    assert values(samples, kernel.MEMCPY_BYTES, "kind") == {"h2d": 20}
    assert values(samples, kernel.MEMCPY_SECONDS, "pinned") == {"true": 2.0}
    assert values(samples, kernel.SYNC_WAIT, "type") == {"stream": 1.0}
    assert values(samples, kernel.SYNC_CALLS, "type") == {"stream": 6}
    assert values(samples, kernel.DEVICE_TIME, "state") == {"idle": 2.0}
    assert aggregator.counts.copies == 2
    assert not values(samples, kernel.PROBE_OVERHEAD)


def test_a_probe_reports_its_overhead() -> None:
    aggregator = Aggregator()
    lost = Counters(0, dropped_frames=2, dropped_records=3, dropped_outcomes=4, malformed_hints=5, untimed_records=6)
    counters = replace(lost, overhead_ns=SECOND_NS)
    aggregator.report(report({}, counters=counters, method="event", version="0.1.0"))
    samples = shown(aggregator)
    assert values(samples, kernel.PROBE_OVERHEAD) == {"": 1.0}
    assert values(samples, kernel.PROBE_DROPPED) == {"": 2}
    assert values(samples, kernel.PROBE_RECORDS) == {"": 3}
    assert values(samples, kernel.PROBE_OUTCOMES) == {"": 4}
    assert values(samples, kernel.PROBE_MALFORMED) == {"": 5}
    assert values(samples, kernel.PROBE_UNTIMED) == {"": 6}
    assert values(samples, kernel.PROBE_INFO, "method") == {"event": 1}


def test_the_versions_of_a_process_are_shown_while_it_lives() -> None:
    aggregator = Aggregator()
    versions = Versions(image="app:2", cuda="12.4", driver="550.54.15")
    aggregator.report(report({"gemm": [1]}, versions=versions))
    aggregator.report(report({"gemm": [1, 2]}))
    (info,) = [dict(one.attributes) for one in shown(aggregator) if one.metric is kernel.PROGRAM_INFO]
    assert Versions.of_labels(info) == versions
    assert "code_version" not in info
    aggregator.report(report({"gemm": [1, 2]}, final=True))
    assert not values(shown(aggregator), kernel.PROGRAM_INFO)


def test_tunables_are_shown_while_their_process_lives() -> None:
    aggregator = Aggregator()
    claim = TunableClaim("block", "128", ("128", "256"), device_model="H200")
    aggregator.report(report({"gemm": [1]}, tunables=(claim,)))
    assert values(shown(aggregator), kernel.TUNABLE_INFO, "allowed") == {"128,256": 1}
    aggregator.report(report({"gemm": [1]}, final=True))
    assert not values(shown(aggregator), kernel.TUNABLE_INFO)


def test_variants_add_up_to_their_kernel_and_the_many_are_summed() -> None:
    aggregator = Aggregator()
    number = kernel_id("gemm")
    rows = [VariantRow(number, f"grid={size}", 1, size, size**2) for size in range(1, 13)]
    variants = {(row.kernel, row.variant): row for row in rows}
    aggregator.report(report({"gemm": list(range(1, 13))}, variants=variants))
    launches = values(shown(aggregator), kernel.VARIANT_LAUNCHES, "variant")
    assert len(launches) == 9
    assert sum(int(str(count)) for count in launches.values()) == 12
    assert launches["other"] == 4


def test_the_last_launch_configuration_is_exposed() -> None:
    aggregator = Aggregator()
    name = KernelName(kernel_id("gemm"), "gemm", "4,1,1", "128,1,1", 32, 1024, 64, 0.5)
    aggregator.report(ProcessReport(process(), DEVICE, (name,), (row("gemm", [5]),)))
    samples = shown(aggregator)
    (info,) = [dict(sample.attributes) for sample in samples if sample.metric is kernel.KERNEL_INFO]
    assert info["local_memory"] == "64"
    assert values(samples, kernel.OCCUPANCY) == {label("gemm"): 0.5}
    assert (info["grid"], info["block"], info["registers"], info["shared_memory"]) == ("4,1,1", "128,1,1", "32", "1024")


def test_outcomes_of_hints_are_counted_for_their_program() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [1]}))
    kept = Outcome("h1", "train", "block", OutcomeState.KEPT, measured_ratio=0.8, hostname="node1", uuid="GPU-1")
    aggregator.outcome(kept)
    aggregator.outcome(Outcome("h2", "unknown", "block", OutcomeState.KEPT))
    samples = shown(aggregator)
    assert values(samples, kernel.HINT_OUTCOMES, "state") == {"kept": 1}
    assert values(samples, kernel.HINT_MEASURED, "tunable") == {"block": 0.8}
    assert aggregator.counts.unmatched == 1


def test_undecided_and_failed_trials_are_counted_apart_from_roll_backs() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [1]}))
    for decision in ("rolled_back", "inconclusive", "failed", "failed", ""):
        aggregator.outcome(Outcome("h1", "train", "conv.run", OutcomeState.ROLLED_BACK, decision=decision))
    found = values(shown(aggregator), kernel.HINT_OUTCOMES, "state")
    assert found == {"rolled_back": 2, "inconclusive": 1, "failed": 2}


def test_programs_share_a_group_only_with_their_own_host() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [1]}))
    aggregator.report(report({"gemm": [1]}, device=Device("node2", "GPU-2")))
    aggregator.report(report({"gemm": [1]}, device=Device("node1", "GPU-3")))
    groups = {(group.hostname, group.program): group for group in aggregator.samples(NOW_NS)}
    assert set(groups) == {("node1", "train"), ("node2", "train")}
    uuids = {dict(sample.attributes)["UUID"] for sample in groups["node1", "train"].samples}
    assert uuids == {"GPU-1", "GPU-3"}


def test_a_replay_says_so_on_every_series() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [1]}, of=Process("train", "n", 1, source="replayed")))
    assert {dict(sample.attributes)["source"] for sample in shown(aggregator)} == {"replayed"}


def test_a_finished_program_is_retired_and_comes_back_with_a_later_start() -> None:
    aggregator = Aggregator(retire_after_seconds=60)
    aggregator.report(report({"gemm": [1, 1]}, final=True))
    assert {sample.start_ns for sample in shown(aggregator) if sample.start_ns} == {900 * SECOND_NS}
    assert shown(aggregator, NOW_NS + 59 * SECOND_NS)
    assert not shown(aggregator, NOW_NS + 60 * SECOND_NS)
    assert aggregator.counts.retired == 1
    aggregator.report(report({"gemm": [1]}, of=process("b")))
    samples = shown(aggregator, NOW_NS + 70 * SECOND_NS)
    assert values(samples, kernel.LAUNCHES) == {label("gemm"): 1}
    assert {sample.start_ns for sample in samples if sample.start_ns} == {NOW_NS + 60 * SECOND_NS}


def test_a_finished_program_is_retired_in_time_also_after_the_clock_was_set_back() -> None:
    aggregator = Aggregator(retire_after_seconds=60)
    aggregator.report(report({"gemm": [1, 1]}, final=True))
    assert shown(aggregator, NOW_NS + 3600 * SECOND_NS)
    assert shown(aggregator, NOW_NS)
    assert not shown(aggregator, NOW_NS + 60 * SECOND_NS)


def test_a_living_program_is_never_retired_however_quiet() -> None:
    aggregator = Aggregator(retire_after_seconds=60)
    aggregator.report(report({"gemm": [1]}))
    for minutes in range(5):
        assert shown(aggregator, NOW_NS + minutes * 61 * SECOND_NS)


@pytest.mark.parametrize("start_ns", [0, NOW_NS + SECOND_NS])
def test_an_impossible_start_is_set_to_now(start_ns: int) -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [1]}, of=process(start_ns=start_ns)))
    assert {sample.start_ns for sample in shown(aggregator) if sample.start_ns} == {NOW_NS}


def test_beyond_the_limit_the_newest_process_is_refused_for_good_and_no_older_one_loses_a_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregate, "MAX_PROCESSES", 3)
    aggregator = Aggregator()
    for launched in ([100], [100, 100]):
        for nonce in "abcd":
            aggregator.report(report({"gemm": launched}, of=process(nonce)))
    assert values(shown(aggregator), kernel.LAUNCHES) == {label("gemm"): 6}
    assert (aggregator.counts.refused, aggregator.counts.late) == (1, 1)
    aggregator.report(report({"gemm": [100, 100]}, of=process("a"), final=True))
    aggregator.report(report({"gemm": [100, 100, 100]}, of=process("d")))  # without the names that it reported before
    aggregator.report(report({"gemm": [100]}, of=process("e")))
    assert values(shown(aggregator), kernel.LAUNCHES) == {label("gemm"): 7}


def test_a_process_of_an_earlier_run_that_has_not_come_back_makes_room_for_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aggregate, "MAX_PROCESSES", 2)
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [100]}, of=process("a")))
    aggregator.recall(report({"gemm": [100]}, of=process("b")))
    aggregator.report(report({"gemm": [100]}, of=process("c")))
    aggregator.report(report({"gemm": [100, 100]}, of=process("b"), final=True))
    assert values(shown(aggregator), kernel.LAUNCHES) == {label("gemm"): 4}
    assert aggregator.counts.refused == 0


def test_a_program_may_have_as_many_processes_as_the_probe_socket_knows() -> None:
    assert ProbeLimits().processes <= aggregate.MAX_PROCESSES


def test_steps_and_their_work_are_summed_over_processes_and_survive_a_restart_of_the_exporter() -> None:
    aggregator = Aggregator()
    aggregator.report(report({}, of=process("a"), counters=Counters(0, steps=3, items=96, step_ns=6 * SECOND_NS)))
    aggregator.report(report({}, of=process("b"), counters=Counters(0, steps=2, items=64, step_ns=SECOND_NS)))
    restored = Aggregator()
    snapshot.restore(restored, snapshot.take(aggregator))
    restored.report(report({}, of=process("a"), counters=Counters(0, steps=4, items=128, step_ns=7 * SECOND_NS)))
    samples = shown(restored)
    assert values(samples, kernel.STEPS) == {"": 6}
    assert values(samples, kernel.ITEMS) == {"": 192}
    assert values(samples, kernel.STEP_SECONDS) == {"": 8.0}


def test_a_program_without_steps_has_no_series_of_them() -> None:
    aggregator = Aggregator()
    aggregator.report(report({"gemm": [1]}, counters=Counters(0)))
    assert values(shown(aggregator), kernel.STEPS) == {}


def test_a_program_whose_steps_have_no_items_has_no_series_of_items() -> None:
    aggregator = Aggregator()
    aggregator.report(report({}, counters=Counters(0, steps=3, items=0, step_ns=SECOND_NS)))
    samples = shown(aggregator)
    assert (values(samples, kernel.STEPS), values(samples, kernel.ITEMS)) == ({"": 3}, {})
    assert values(samples, kernel.FLOPS) == {}


def test_operations_are_written_in_operations_and_travel_in_millions() -> None:
    aggregator = Aggregator()
    aggregator.report(report({}, counters=Counters(0, steps=3, megaflops=3_000_000_002, step_ns=SECOND_NS)))
    assert values(shown(aggregator), kernel.FLOPS) == {"": 3_000_000_002e6}


def test_the_cost_of_trials_is_summed_and_survives_a_restart_of_the_exporter() -> None:
    aggregator = Aggregator()
    budget = Counters(0, trial_lost_ns=SECOND_NS, trial_allowed_ns=4 * SECOND_NS)
    aggregator.report(report({}, of=process("a"), counters=budget))
    aggregator.report(report({}, of=process("b"), counters=Counters(0, trial_allowed_ns=SECOND_NS)))
    restored = Aggregator()
    snapshot.restore(restored, snapshot.take(aggregator))
    restored.report(report({}, of=process("a"), counters=replace(budget, trial_allowed_ns=5 * SECOND_NS)))
    assert values(shown(restored), kernel.TRIAL_LOST) == {"": 1.0}
    assert values(shown(restored), kernel.TRIAL_ALLOWED) == {"": 6.0}


def test_a_process_that_stands_still_is_shown_with_its_state_until_it_moves_or_ends() -> None:
    aggregator = Aggregator()
    aggregator.report(report({}, standing=Standing("j", "data", 61.0, "/run/s")))
    assert values(shown(aggregator), kernel.STANDING, by="state") == {"data": 61.0}
    (sample,) = [sample for sample in shown(aggregator) if sample.metric is kernel.STANDING]
    assert {"job_id": "j", "stacks": "/run/s"}.items() <= dict(sample.attributes).items()
    aggregator.report(report({}, standing=Standing("j")))
    aggregator.report(report({}))  # unchanged
    assert values(shown(aggregator), kernel.STANDING, by="state") == {"": 0.0}
    aggregator.report(report({}, final=True))
    assert values(shown(aggregator), kernel.STANDING, by="state") == {}


def test_processes_that_end_without_a_word_are_counted_from_zero() -> None:
    aggregator = Aggregator()
    aggregator.report(report({}, lost=False))
    assert values(shown(aggregator), kernel.LOST_PROCESSES) == {"": 0}
    aggregator.report(report({}, final=True, lost=True))
    aggregator.report(report({}, of=process("b"), final=True, lost=True))
    aggregator.report(report({}, of=process("c"), final=True, lost=False))
    assert values(shown(aggregator), kernel.LOST_PROCESSES) == {"": 2}


def test_live_processes_of_a_program_are_counted() -> None:
    aggregator = Aggregator()
    aggregator.report(report({}, of=process("a")))
    aggregator.report(report({}, of=process("b")))
    assert values(shown(aggregator), kernel.PROCESSES) == {"": 2}
    aggregator.report(report({}, of=process("a"), final=True))
    assert values(shown(aggregator), kernel.PROCESSES) == {"": 1}
    aggregator.report(report({}, of=process("b"), final=True))
    assert values(shown(aggregator), kernel.PROCESSES) == {}
