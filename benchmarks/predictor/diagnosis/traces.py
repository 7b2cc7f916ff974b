"""Lists the rules that hold for recorded profiler traces, and the signals that the traces lack."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from benchmarks.predictor.options import Options

from kernelcast.columnar import Attributes, Decoder, Resource, Sample, encode
from kernelcast.exporter.replay import TraceSource
from kernelcast.exporter.replay.formats import kineto
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.predictor.intake import WindowFeed
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.tuning.diagnosis import ProgramOnDevice, holding, missing
from kernelcast.predictor.tuning.signals import read_signals
from kernelcast.wire.catalogue.diagnosis.rules import Signal

PARTS: Final = 24
"""Intervals into which a trace is divided: it is shorter than the 5 minutes that a live program is judged by."""
START_NS: Final = 1_800_000_000 * 1_000_000_000
MAX_SERIES: Final = 20_000
NODE: Final = Resource((("service.instance.id", "replay"), ("service.name", "kernelcast-exporter")))


class _NoTunables:
    """Ignores reports of tunables; traces have none."""

    def observe(self, attributes: Attributes, *, time_ns: int, owner: int, now_ns: int) -> None:
        """Ignore one report."""

    def observe_versions(self, attributes: Attributes, *, time_ns: int, now_ns: int) -> None:
        """Ignore one report."""


def signals_of(path: Path) -> dict[ProgramOnDevice, dict[Signal, float]]:
    """Replay a trace through the exporter's totals, the wire and the predictor's windows.

    Args:
        path: A trace of PyTorch's profiler.
    """
    trace = kineto.read(path)
    source = TraceSource(trace, program=path.name, rank=trace.rank, hostname="replay", speed=1.0, start_ns=START_NS)
    interval_ns = max(round(source.length_seconds * 1e9 / PARTS), 1)
    decoder, aggregator = Decoder(), Aggregator(max_kernels=None)
    windows = Windows(interval_ns=interval_ns, points=PARTS + 2, max_series=MAX_SERIES)
    feed = WindowFeed(windows, decoder, _NoTunables())
    for part in range(1, PARTS + 1):
        now_ns = START_NS + part * interval_ns
        for report in source.poll(now_ns).reports:
            aggregator.report(report)
        for program in aggregator.samples(now_ns):
            _send(list(program.samples), decoder, feed, now_ns / 1e9)
    return read_signals(windows, nullcontext())


def _send(samples: list[Sample], decoder: Decoder, feed: WindowFeed, now_seconds: float) -> None:
    bodies = [export.body for export in encode(NODE, samples, scope="replay")]
    feed.take(decoder.decode(bodies), [0] * len(bodies), now_seconds=now_seconds)


def run(options: Options) -> dict[str, Any]:
    """List diagnoses of every trace."""
    found: dict[str, Any] = {}
    for path in sorted(options.recordings("kineto").glob("*.json.gz")):
        for where, signals in signals_of(path).items():
            found[f"{path.name}, GPU {where.device[1].rpartition('-')[2]}"] = {
                "rules": {rule.name: round(signals[rule.evidence], 4) for rule in holding(signals)},
                "signals": {name: round(value, 7) for name, value in signals.items()},
                "missing": list(missing(signals)),
            }
    return {"traces": found}


def table(result: dict[str, Any]) -> str:
    """The rules that hold and the signals that are missing, by trace, as text."""
    lines = []
    for name, one in result["traces"].items():
        rules = ", ".join(f"{rule} ({value:g})" for rule, value in one["rules"].items()) or "no rule"
        lines.append(f"{name}: {rules}")
        lines.append("    " + ", ".join(f"{signal} {value:g}" for signal, value in one["signals"].items()))
        lines.append(f"    missing: {', '.join(one['missing']) or 'nothing'}")
    return "\n".join(lines)
