"""The node's GPUs as a source of the daemon: asks the sampler for a reading, and converts it to samples."""

from collections.abc import Callable, Sequence
from typing import Protocol, Self

from kernelcast.columnar import EndedSeries
from kernelcast.exporter.nvml.counters_file import CountersFile
from kernelcast.exporter.nvml.otel_names import OtelNames
from kernelcast.exporter.nvml.samples import NO_ATTRIBUTION, CounterStarts, Users, device_of, to_samples
from kernelcast.exporter.nvml.sampling.fields import SOURCE_ROWS
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions
from kernelcast.exporter.nvml.windows import EventCounts
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.identity import LIVE, Device

ErrorListener = Callable[[str, str], None]

_log = get_logger(__name__)


def ignore_error(_call: str, _error: str) -> None:
    """Ignore an error; for callers that count none."""


class GpuSampler(Protocol):
    """Samples the GPUs: `sampling.sampler.Sampler` in this process, or `IsolatedSampler` in another one."""

    def start(self) -> Self:
        """Load NVML; raises DeviceError if there is no driver."""
        ...

    def found(self) -> Sequence[GpuReading]:
        """Return the known GPUs and MIG instances, without values."""
        ...

    def sample(self, time_ns: int) -> NodeReading | None:
        """Read every GPU; None if NVML does not answer. `time_ns` becomes the reading's time."""
        ...

    def change(self, options: SamplerOptions) -> None:
        """Use other options from the next sample on."""
        ...

    def close(self) -> None:
        """Release NVML; safe to call twice."""
        ...


class NvmlSource:
    """Polls every GPU of the node. Only the daemon's thread calls it; any thread may read `devices`.

    Args:
        sampler: Reads the GPUs.
        hostname: The node's name.
        boot_ns: Time of the boot, at which the driver's counters start, Unix nanoseconds.
        on_error: Called with the call and NVML's name for the error, once for each.
        source: One of `wire.identity.SOURCES`.
        counters: Table of the rows that are written; the sampler must have been made with its options.

    Attributes:
        users: Users of GPUs; the daemon's assembly sets it before the first poll.
        events: Counts events within the windows of dcgm-exporter's rows; can be replaced before the first poll.
        answers: Whether NVML answered at the last poll.
        reading: The last reading; None before the first.
        source: As given.
    """

    def __init__(
        self,
        sampler: GpuSampler,
        *,
        hostname: str,
        boot_ns: int,
        on_error: ErrorListener = ignore_error,
        source: str = LIVE,
        counters: CountersFile | None = None,
    ) -> None:
        self._sampler = sampler
        self._hostname = hostname
        self._starts = CounterStarts(boot_ns)
        self._on_error = on_error
        self.users: Users = NO_ATTRIBUTION
        self.answers = False
        self.source = source
        self._counters = counters or CountersFile()
        self.events = EventCounts()
        self._otel_names: OtelNames | None = None
        self._ended: EndedSeries[str] = EndedSeries()
        self._missing: frozenset[str] = frozenset()
        self.reading: NodeReading | None = None
        self._devices: tuple[Device, ...] = ()

    def name_as_opentelemetry(self) -> None:
        """Write the rows under OpenTelemetry's names as well; the sampler must sample their sources."""
        self._otel_names = OtelNames(self._hostname, self.source, self._starts)

    def start(self) -> "NvmlSource":
        """Load NVML and find the GPUs, as far as they answer in time.

        Raises:
            DeviceError: There is no driver.
        """
        self._warn()
        # A program may connect, and claim its GPU, before the first interval.
        self._devices = tuple(device_of(gpu, self._hostname) for gpu in self._sampler.start().found())
        return self

    @property
    def devices(self) -> tuple[Device, ...]:
        """The GPUs found, MIG instances included."""
        return self._devices

    def poll(self, now_ns: int) -> SourceBatch:
        """Every series of each GPU as of `now_ns`, and which of them have ended."""
        self._read_table()
        node = self._sampler.sample(now_ns)
        self.answers = node is not None
        if node is None:
            return SourceBatch()
        self._notice(node)
        self.reading = node
        if self._counters.table.rows.keys() & SOURCE_ROWS.keys():
            node = self.events.complete(node)
        else:
            self.events.observe(node)
        samples = to_samples(
            node,
            hostname=self._hostname,
            start_of=self._starts,
            users=self.users,
            source=self.source,
            table=self._counters.table,
        )
        if self._otel_names is not None:
            samples.extend(self._otel_names.samples(node))
        return SourceBatch(samples=tuple(self._ended.complete(self._hostname, samples, now_ns)))

    def close(self) -> None:
        """Release NVML; safe to call twice."""
        self._sampler.close()

    def _read_table(self) -> None:
        """Use the counters table as it is now."""
        try:
            if not self._counters.changed():
                return
        except ConfigurationError as error:
            _log.error("the counters table is wrong; the old one stays", reason=str(error))
            return
        self._sampler.change(self._counters.options)
        _log.info("counters table read again", rows=len(self._counters.table.rows))
        self._warn()

    def _warn(self) -> None:
        for warning in self._counters.table.warnings:
            _log.warning("counters table", problem=warning)

    def _notice(self, node: NodeReading) -> None:
        for call, error in node.errors:
            self._on_error(call, error)
        missing = frozenset(node.missing)
        for uuid in missing - self._missing:
            _log.warning("GPU is gone", uuid=uuid)
        self._missing = missing
        # The probe server's thread reads it, so it is replaced as a whole.
        self._devices = tuple(device_of(gpu, self._hostname) for gpu in node.gpus if gpu.uuid not in missing)
