"""TPUs as a source of the daemon: a thread per port asks the runtime, and `poll` returns the last answers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kernelcast.columnar import Sample
from kernelcast.exporter.background_value import Refreshed, RefreshPolicy
from kernelcast.exporter.counter_starts import KeyedStarts
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.exporter.tpu.reader import ALL, ERRORS, RuntimeReading, Value, read
from kernelcast.exporter.tpu.runtime import TIMEOUT_SECONDS, TpuRuntime
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue.devices import accelerator, tpu
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Labels, labels

MAX_PORTS: Final = 16
"""Limit of threads; a host has at most eight chips, and so at most eight programs that use them."""
FIRST_SECONDS: Final = 1.0
"""Longest wait of the daemon's start for each first answer."""
KEPT_INTERVALS: Final = 2
"""An answer is shown for this number of intervals, plus the time of one call."""
NOTHING: Final = RuntimeReading()

COMMON: Final[dict[Metric, Metric]] = {
    tpu.DUTY_CYCLE: accelerator.UTILIZATION,
    tpu.HBM_USED: accelerator.MEMORY_USED,
    tpu.HBM_TOTAL: accelerator.MEMORY_TOTAL,
}
"""Rows that are also written under names that GPUs and TPUs have in common."""

ErrorListener = Callable[[str], None]


class TpuSource:
    """Asks the runtimes of this node's programs.

    The daemon's thread calls `poll` and `close`; the thread of each port calls `on_error`.

    Args:
        ports: Ports of programs, one for each.
        hostname: The node's name.
        model: Model name of the TPUs.
        interval_seconds: Time between two readings.
        on_error: Called with `timeout` or `error`, once for each failed reading.
        host: Address of the programs; tests pass another one.

    Raises:
        MissingExtraError: grpcio is not installed.
    """

    def __init__(
        self,
        ports: Sequence[int],
        *,
        hostname: str,
        model: str,
        interval_seconds: float,
        on_error: ErrorListener,
        host: str = "127.0.0.1",
    ) -> None:
        self._hostname = hostname
        self._model = model
        self._on_error = on_error
        self._runtimes = {port: TpuRuntime(f"{host}:{port}") for port in ports[:MAX_PORTS]}
        pace = RefreshPolicy(interval_seconds, KEPT_INTERVALS * interval_seconds + TIMEOUT_SECONDS)
        self._readings = {
            port: Refreshed(f"tpu:{port}", self._asking(runtime), NOTHING, pace=pace, on_error=self._failed)
            for port, runtime in self._runtimes.items()
        }
        self._starts = KeyedStarts()

    def start(self) -> "TpuSource":
        """Start the threads, and wait for the first answers, `FIRST_SECONDS` each at most."""
        for reading in self._readings.values():
            reading.start()
        for reading in self._readings.values():
            reading.wait_for_first(FIRST_SECONDS)
        return self

    def refresh(self) -> None:
        """Ask every port once, now, on the caller's thread."""
        for reading in self._readings.values():
            reading.refresh()

    def poll(self, now_ns: int) -> SourceBatch:
        """Return every series of every runtime as of its last answer; never waits."""
        samples: list[Sample] = []
        common: dict[tuple[Metric, Labels], Sample] = {}
        for port, reading in self._readings.items():
            base = {"Hostname": self._hostname, "port": str(port), "modelName": self._model}
            answer = reading.value
            samples.extend(self._sample(value, base, now_ns) for value in answer.values)
            samples.extend(_absent(answer, base, now_ns))
            for sample in self._common(answer.values, now_ns):
                # Two programs cannot have one TPU: the first that reports it counts.
                common.setdefault((sample.metric, sample.attributes), sample)
        return SourceBatch(samples=(*samples, *common.values()))

    def close(self) -> None:
        """Stop the threads and close the connections; safe to call twice."""
        for reading in self._readings.values():
            reading.close()
        for runtime in self._runtimes.values():
            runtime.close()

    def _asking(self, runtime: TpuRuntime) -> Callable[[], RuntimeReading]:
        def ask() -> RuntimeReading:
            answer = read(runtime)
            for reason in {*answer.absent.values()} & {*ERRORS}:
                self._on_error(reason)
            return answer

        return ask

    def _failed(self, _source: str) -> None:
        self._on_error("error")

    def _sample(self, value: Value, base: dict[str, str], now_ns: int) -> Sample:
        attributes = labels(**base, **dict(value.labels))
        if not isinstance(value.value, DurationTotals):
            return Sample(value.row, attributes, now_ns, value.value)
        start_ns = min(value.start_ns, now_ns) or self._starts((value.row, attributes), value.value.count, now_ns)
        return Sample(value.row, attributes, now_ns, value.value, start_ns, value.detailed)

    def _common(self, values: Iterable[Value], now_ns: int) -> Iterator[Sample]:
        for value in values:
            row, index = COMMON.get(value.row), dict(value.labels).get("tpu", "")
            if row is not None and index and not isinstance(value.value, DurationTotals):
                own = labels(accelerator="tpu", Hostname=self._hostname, index=index, modelName=self._model)
                yield Sample(row, own, now_ns, value.value)


def _absent(answer: RuntimeReading, base: dict[str, str], now_ns: int) -> Iterator[Sample]:
    only = answer.absent if ALL not in answer.absent else {ALL: answer.absent[ALL]}
    for name, reason in sorted(only.items()):
        yield Sample(tpu.ABSENT, labels(**base, metric=name, reason=reason), now_ns, 1)
