"""Converts an aggregator to a JSON document and back, with everything that it needs to continue.

`StateFile` writes the document before each publication and reads it at the start.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from kernelcast.exporter.totals.aggregate import Aggregator, ProgramOnGpu
from kernelcast.exporter.totals.emit import COUNTERS
from kernelcast.exporter.totals.energy import GpuEnergy, GpuKey
from kernelcast.exporter.totals.increments import CounterKey, LaunchTotals, Timed
from kernelcast.exporter.totals.process import ProcessTotals
from kernelcast.exporter.totals.series import KernelSeries, ProgramSeries, SeriesKey
from kernelcast.wire.frames import KernelName, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device

Document = dict[str, Any]
HISTOGRAMS: Final = {"gaps": "launch_gaps", "step_durations": "step_durations"}
"""Place in the document to name of a histogram."""
UNREADABLE: Final = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What `restore` raises for a document that `take` did not make."""
_LARGEST: Final = 2**64 - 1
"""The largest integer that the JSON writer accepts; a greater sum of squares is stored as text."""


def take(aggregator: Aggregator, *, energy: bool = True) -> Document:
    """Return the aggregator's state, without statuses and tunables, which processes send again.

    Args:
        aggregator: The aggregator.
        energy: Whether to include the GPUs' own energy.
    """
    gpus = aggregator.energy.gpus if energy else {}
    return {
        "epoch_ns": aggregator.epoch_ns,
        "finished": aggregator.finished.saved(),
        "energy": [[*key, known.gpu, known.start_ns, known.active_uj, known.idle_uj] for key, known in gpus.items()],
        "unmeasured_energy": [[*key, known.unmeasured_uj] for key, known in gpus.items() if known.unmeasured_uj],
        "outcome_ids": aggregator.outcome_ids.saved(),
        "programs": [_member(member) for member in aggregator.members.values()],
    }


def restore(aggregator: Aggregator, document: Document) -> list[str]:
    """Restore the state of an earlier aggregator; one of `UNREADABLE` is raised if `take` did not make the document.

    Returns:
        The reason for each program that cannot be read. Its series begin again, at the aggregator's `epoch_ns`.
    """
    epoch_ns = int(document["epoch_ns"])
    finished = [str(name) for name in document["finished"]]
    members, unreadable = _restored_members(document["programs"])
    if unreadable:
        epoch_ns = max(epoch_ns, aggregator.epoch_ns)
    gpus = {
        GpuKey(hostname, uuid, source): GpuEnergy(str(index), int(start_ns), int(active_uj), int(idle_uj))
        for hostname, uuid, source, index, start_ns, active_uj, idle_uj in document["energy"]
    }
    for hostname, uuid, source, unmeasured_uj in document["unmeasured_energy"]:
        gpus[GpuKey(hostname, uuid, source)].unmeasured_uj = int(unmeasured_uj)
    outcome_ids = [str(event_id) for event_id in document["outcome_ids"]]
    aggregator.energy.gpus = gpus
    aggregator.outcome_ids.restore(outcome_ids)
    aggregator.epoch_ns = epoch_ns
    aggregator.finished.restore(finished)
    aggregator.members = {member.series.key: member for member in members}
    return unreadable


def _restored_members(items: list[Document]) -> tuple[list[ProgramOnGpu], list[str]]:
    """Return the programs, and the reasons for those that cannot be read; raises if none of them can be."""
    members, unreadable = [], []
    for item in items:
        try:
            members.append(_restored_member(item))
        except UNREADABLE as error:
            unreadable.append(f"{type(error).__name__}: {error}")
    if unreadable and not members:
        raise ValueError(f"no program can be read: {unreadable[0]}")
    return members, unreadable


def _member(member: ProgramOnGpu) -> Document:
    series = member.series
    numbers = {signature: number for number, signature in enumerate(series.kernels)}
    return {
        "key": list(series.key),
        "device": _flat(series.device),
        "start_ns": series.start_ns,
        "kernels": [_kernel(kernel) for kernel in series.kernels.values()],
        "other": {kernel_class: _launches(totals) for kernel_class, totals in series.other.items()},
        "counters": _counters(series.counters),
        **_histograms(series.durations),
        "metered": series.metered,
        "counted": series.counted,
        "other_energy_uj": series.other_energy_uj,
        "outcomes": [[*key, count] for key, count in series.outcomes.items()],
        "measured": series.measured,
        "live": {nonce: _process(process, numbers) for nonce, process in member.live.items()},
        "ended": {nonce: _process(process, numbers) for nonce, process in member.ended.items()},
    }


def _restored_member(item: Document) -> ProgramOnGpu:
    series = ProgramSeries(SeriesKey(*item["key"]), Device(**item["device"]), int(item["start_ns"]))
    kernels = [_restored_kernel(kernel) for kernel in item["kernels"]]
    series.kernels = {kernel.signature: kernel for kernel in kernels}
    series.other = {str(name): _restored_launches(totals) for name, totals in item["other"].items()}
    series.counters = _restored_counters(item["counters"])
    series.durations = _restored_histograms(item)
    series.metered = bool(item["metered"])
    series.counted = int(item["counted"])
    series.other_energy_uj = {str(name): int(used_uj) for name, used_uj in item["other_energy_uj"].items()}
    series.outcomes = {(tunable, state): int(count) for tunable, state, count in item["outcomes"]}
    series.measured = {str(tunable): float(ratio) for tunable, ratio in item["measured"].items()}
    member = ProgramOnGpu(series)
    for restored, stored in ((member.live, item["live"]), (member.ended, item["ended"])):
        for nonce, process in stored.items():
            restored[nonce] = _restored_process(process, kernels)
    return member


def _kernel(kernel: KernelSeries) -> Document:
    return {
        "signature": kernel.signature,
        "gpu_time_ns": kernel.gpu_time_ns,
        "admitted": kernel.admitted,
        "detailed": kernel.detailed,
        "totals": _launches(kernel.totals),
        "pending": _launches(kernel.pending),
        "variants": {variant: _timed(totals) for variant, totals in kernel.variants.items()},
        "config": _flat(kernel.config) if kernel.config else None,
        "energy_uj": kernel.energy_uj,
    }


def _restored_kernel(item: Document) -> KernelSeries:
    return KernelSeries(
        signature=str(item["signature"]),
        gpu_time_ns=int(item["gpu_time_ns"]),
        admitted=bool(item["admitted"]),
        detailed=bool(item["detailed"]),
        totals=_restored_launches(item["totals"]),
        pending=_restored_launches(item["pending"]),
        variants={str(variant): _restored_timed(totals) for variant, totals in item["variants"].items()},
        config=KernelName(**item["config"]) if item["config"] else None,
        energy_uj=int(item["energy_uj"]),
    )


def _process(process: ProcessTotals, numbers: dict[str, int]) -> Document:
    return {
        "names": [[kernel, numbers.get(name.signature, -1)] for kernel, name in process.names.items()],
        "rows": [[kernel, _launches(totals)] for kernel, totals in process.rows.items()],
        "variants": [_variant(row) for row in process.variants.values()],
        "counters": _counters(process.counters),
        **_histograms(process.durations),
    }


def _restored_process(item: Document, kernels: list[KernelSeries]) -> ProcessTotals:
    process = ProcessTotals()
    process.confirmed = False
    process.names = {
        int(kernel): KernelName(int(kernel), kernels[number].signature)
        for kernel, number in item["names"]
        if number >= 0
    }
    process.rows = {int(kernel): _restored_launches(totals) for kernel, totals in item["rows"]}
    process.variants = {(row.kernel, row.variant): row for row in map(_restored_variant, item["variants"])}
    process.counters = _restored_counters(item["counters"])
    process.durations = _restored_histograms(item)
    return process


def _counters(counters: Mapping[CounterKey, int]) -> list[list[Any]]:
    return [[*key, total] for key, total in counters.items()]


def _restored_counters(rows: list[list[Any]]) -> dict[CounterKey, int]:
    """Read counters; those that this exporter cannot emit are left out."""
    return {tuple(key): int(total) for *key, total in rows if key[0] in COUNTERS}


def _histograms(durations: Mapping[str, DurationTotals]) -> Document:
    return {place: _durations(durations[name]) if name in durations else None for place, name in HISTOGRAMS.items()}


def _restored_histograms(item: Document) -> dict[str, DurationTotals]:
    return {name: _restored_durations(item[place]) for place, name in HISTOGRAMS.items() if item[place]}


def _launches(totals: LaunchTotals) -> list[Any]:
    durations = totals.durations
    return [
        totals.launches,
        durations.count,
        durations.sum_ns,
        _number(durations.sum_squares_ns2),
        durations.zero_count,
        _pairs(durations),
        totals.queue_delays,
        totals.queue_delay_ns,
        totals.graph_launches,
    ]


def _restored_launches(item: list[Any]) -> LaunchTotals:
    launches, *durations, queue_delays, queue_delay_ns, graph_launches = item
    return LaunchTotals(
        int(launches), _restored_durations(durations), int(queue_delays), int(queue_delay_ns), int(graph_launches)
    )


def _durations(totals: DurationTotals) -> list[Any]:
    return [totals.count, totals.sum_ns, _number(totals.sum_squares_ns2), totals.zero_count, _pairs(totals)]


def _pairs(totals: DurationTotals) -> list[int]:
    return list(chain.from_iterable(totals.buckets.items()))


def _number(squares: int) -> int | str:
    return squares if squares <= _LARGEST else str(squares)


def _restored_durations(item: list[Any]) -> DurationTotals:
    count, sum_ns, squares, zero_count, buckets = item
    pairs = zip(buckets[::2], buckets[1::2], strict=True)
    return DurationTotals(int(count), int(sum_ns), int(squares), int(zero_count), dict(pairs))


def _timed(totals: Timed) -> list[Any]:
    return [totals.count, totals.sum_ns, _number(totals.sum_squares_ns2)]


def _variant(row: VariantRow) -> list[Any]:
    return [row.kernel, row.variant, row.launches, row.sum_ns, _number(row.sum_squares_ns2)]


def _restored_variant(item: list[Any]) -> VariantRow:
    kernel, variant, launches, sum_ns, squares = item
    return VariantRow(int(kernel), str(variant), int(launches), int(sum_ns), int(squares))


def _restored_timed(item: list[Any]) -> Timed:
    count, sum_ns, squares = item
    return Timed(int(count), int(sum_ns), int(squares))


def _flat(value: Device | KernelName) -> Document:
    """Return the fields of a value without copying them: `dataclasses.asdict` takes several times as long."""
    return {name: getattr(value, name) for name in value.__match_args__}
