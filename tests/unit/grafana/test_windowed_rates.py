"""No rule and no panel divides what was seen in windows by wall time: dimensions of every expression are compared.

Kernels and waits have measured times of their own, so an expression has a dimension for each of the two: the rate of a
metric of `WINDOWED` that is counted in this time has the dimension 1, so has the share of this time, and anything else
has 0. A product adds, a quotient subtracts. An expression that a person reads has 0: a rate that lacks its correction
has 1, and a ratio of two such rates with a correction has -1.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import promql_parser
import pytest
import yaml
from tests.unit.grafana.queries import boards, panels, without_variables

from kernelcast.grafana import rules
from kernelcast.wire.catalogue import Kind, Metric, kernel
from kernelcast.wire.catalogue.devices import energy
from kernelcast.wire.catalogue.windows import WAITS, WINDOWED, measured_time

SEEN: Final = {row.prometheus_name: measured_time(row) for row in WINDOWED}
TIMES: Final = (kernel.PROBE_MEASURED, kernel.PROBE_WAITS_MEASURED)
RATES: Final = frozenset({"rate", "increase", "irate", "delta"})
WITHOUT_DIMENSION: Final = frozenset(
    {"histogram_quantile", "absent", "time", "timestamp", "vector", "present_over_time", "absent_over_time"}
)
COUNTS: Final = frozenset({"count", "group", "count_values"})
ALWAYS_COUNTED: Final = frozenset(
    {
        kernel.REGION_WALL,
        kernel.STEPS,
        kernel.ITEMS,
        kernel.STEP_SECONDS,
        kernel.STEP_DURATION,
        kernel.FLOPS,
        kernel.SKIPPED_STEPS,
        kernel.LOST_PROCESSES,
        kernel.PHASE_SECONDS,
        kernel.GPU_PHASE_SECONDS,
        kernel.GPU_PHASE_STEPS,
        kernel.COMPILATIONS,
        kernel.COMPILATION_SECONDS,
        kernel.ALLOCATOR_RETRIES,
        kernel.OUT_OF_MEMORY,
        kernel.TRIAL_LOST,
        kernel.TRIAL_ALLOWED,
        kernel.PROBE_RUNNING,
        kernel.PROBE_MEASURED,
        kernel.PROBE_WAITS_MEASURED,
        kernel.PROBE_OVERHEAD,
        kernel.PROBE_DECODING,
        kernel.PROBE_UNTIMED,
        kernel.PROBE_DROPPED,
        kernel.PROBE_RECORDS,
        kernel.PROBE_OUTCOMES,
        kernel.PROBE_MALFORMED,
        kernel.PROBE_UNSEEN,
        kernel.HINT_OUTCOMES,
        energy.ENERGY,
    }
)
"""Totals of programs that go on between two windows."""


def dimension(expr: str, time: Metric, recorded: Mapping[str, int] | None = None) -> int:
    return _of(promql_parser.parse(without_variables(expr)), time, recorded or {}, rated=False)


def _of(node: Any, time: Metric, recorded: Mapping[str, int], *, rated: bool) -> int:
    if isinstance(node, promql_parser.MatrixSelector):
        node = node.vector_selector
    if isinstance(node, promql_parser.VectorSelector):
        name = _base(node.name or "")
        return recorded.get(name, 0) or int(rated and (SEEN.get(name) is time or name == time.prometheus_name))
    if isinstance(node, promql_parser.AggregateExpr):
        return 0 if str(node.op) in COUNTS else _of(node.expr, time, recorded, rated=rated)
    if isinstance(node, promql_parser.Call):
        name = node.func.name
        inner = [_of(one, time, recorded, rated=rated or name in RATES) for one in node.args]
        return 0 if name in WITHOUT_DIMENSION else max(inner, default=0, key=abs)
    if isinstance(node, promql_parser.BinaryExpr):
        return _of_two(node, time, recorded, rated=rated)
    if isinstance(node, promql_parser.NumberLiteral | promql_parser.StringLiteral):
        return 0
    return _of(node.expr, time, recorded, rated=rated)


def _of_two(node: Any, time: Metric, recorded: Mapping[str, int], *, rated: bool) -> int:
    left, right = (_of(one, time, recorded, rated=rated) for one in (node.lhs, node.rhs))
    operation = str(node.op)
    if operation in {"*", "/"}:
        return left + right if operation == "*" else left - right
    if operation in {"+", "-", "or"} and left != right:
        # The fallback of the share is the number 1, which has its dimension.
        is_share = operation == "or" and left == 1 and not right and time.prometheus_name in node.lhs.prettify()
        assert is_share, f"{operation} joins dimension {left} and {right}: {node.prettify()}"
    return left


def _base(name: str) -> str:
    ends = (name.removesuffix(end) for end in ("_bucket", "_sum", "_count"))
    return next((end for end in ends if end in SEEN), name)


def recordings(text: str) -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(text)["groups"]:
        yield from ((rule.get("record", ""), rule["expr"]) for rule in group["rules"])


def wrong(
    expressions: Iterator[tuple[str, str]] | list[tuple[str, str]], time: Metric, recorded: dict[str, int]
) -> list[str]:
    found = []
    for name, expr in expressions:
        if name in recorded:
            continue
        value = dimension(expr, time, recorded)
        if name.endswith(":share") and kernel.PROBE_MEASURED.prometheus_name.removesuffix("_total") in name:
            recorded[name] = value
        elif value:
            found.append(f"{value:+d} {name}: {expr}")
    return found


of_each_time = pytest.mark.parametrize("time", TIMES, ids=lambda row: row.prometheus_name)


@of_each_time
@pytest.mark.parametrize("file", [rules.CLASSIC_FILE, rules.NATIVE_FILE])
def test_a_rule_divides_what_was_seen_by_the_measured_time(file: str, time: Metric) -> None:
    written, recorded = rules.render(rules.PRODUCTION), dict[str, int]()
    assert wrong(recordings(written[file]), time, recorded) == []
    assert list(recorded.values()) == [int(time is kernel.PROBE_MEASURED)]
    assert wrong(recordings(written[rules.ALERTS_FILE]), time, recorded) == []


@of_each_time
def test_a_panel_divides_what_was_seen_by_the_measured_time(time: Metric) -> None:
    queries = [
        (f"{name}, {panel['title']}", target["expr"])
        for name, board in boards().items()
        for panel in panels(board)
        for target in panel.get("targets", ())
        if "expr" in target
    ]
    names = divided_by(time)
    assert sum(any(name in expr for name in names) for _, expr in queries) > (
        20 if time is kernel.PROBE_MEASURED else 2
    )
    assert wrong(queries, time, {}) == []


def divided_by(time: Metric) -> set[str]:
    """The measured time, and the recordings that divide by it or read one that does."""
    names = {time.prometheus_name}
    for record, expr in recordings(rules.render(rules.PRODUCTION)[rules.CLASSIC_FILE]):
        if any(name in expr for name in names):
            names.add(record)
    return names


SHARE: Final = (
    "sum by (program) (rate(kernelcast_probe_measured_seconds_total[5m])) / "
    "sum by (program) (rate(kernelcast_probe_running_seconds_total[5m]))"
)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("sum(rate(cuda_kernel_launches_total[5m]))", 1),
        ("sum by (le) (increase(cuda_kernel_duration_seconds_bucket[5m]))", 1),
        ("rate(cuda_region_gpu_seconds_total[5m]) / rate(cuda_region_wall_seconds_total[5m])", 1),
        ("rate(cuda_kernel_duration_seconds_sum[5m]) / (rate(cuda_kernel_duration_seconds_count[5m]) > 0)", 0),
        (f"sum by (program) (rate(cuda_kernel_launches_total[5m])) / ({SHARE})", 0),
        (f"rate(cuda_memcpy_bytes_total[5m]) / rate(cuda_memcpy_seconds_total[5m]) / ({SHARE})", -1),
        ("count(cuda_kernel_launches_total)", 0),
        (f"sum by (program) (rate(cuda_sync_wait_seconds_total[5m])) / ({SHARE})", -1),
    ],
)
def test_the_dimension_tells_a_corrected_rate_from_others(expr: str, expected: int) -> None:
    assert dimension(expr, kernel.PROBE_MEASURED) == expected


def test_the_rate_of_waits_has_the_dimension_of_their_own_time() -> None:
    rate = "rate(cuda_sync_wait_seconds_total[5m])"
    assert [dimension(rate, time) for time in TIMES] == [0, 1]
    assert {row for row in WINDOWED if measured_time(row) is TIMES[1]} == WAITS


def test_every_total_of_programs_is_known_to_stop_between_windows_or_to_go_on() -> None:
    totals = {row for row in (*kernel.ROWS, *energy.ROWS) if row.kind in {Kind.COUNTER, Kind.HISTOGRAM}}
    assert totals - ALWAYS_COUNTED == WINDOWED, "add a new row to WINDOWED if probes see it in windows, else here"
