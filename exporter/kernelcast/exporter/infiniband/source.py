"""The node's InfiniBand ports as a source of the daemon: a thread reads sysfs, `poll` returns its last reading."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernelcast.columnar import EndedSeries, Sample
from kernelcast.exporter.background_value import Refreshed, RefreshPolicy
from kernelcast.exporter.counter_starts import KeyedStarts
from kernelcast.exporter.infiniband import ports
from kernelcast.exporter.infiniband.ports import SYSFS, PortReading, read_ports
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.catalogue.devices import infiniband
from kernelcast.wire.identity import Labels, labels

NAME: Final = "infiniband"
FIRST_SECONDS: Final = 1.0
"""Longest wait of the daemon's start for the first reading."""
KEPT_INTERVALS: Final = 3
SLOWEST_READ_SECONDS: Final = 30.0
"""A reading is shown for `KEPT_INTERVALS` intervals plus this: an adapter's firmware may answer slowly."""


@dataclass(frozen=True, slots=True)
class _NodePorts:
    """All ports at one moment."""

    time_ns: int = 0
    ports: tuple[PortReading, ...] = ()


class InfinibandSource:
    """Reads the ports of this node; `poll` never waits. The daemon's thread calls it; a thread of its own reads.

    Each poll returns the last reading and requests the next one, so a sample is one interval old and carries the time
    at which it was read. A read that hangs costs the ports' series, and nothing else.

    Args:
        hostname: The node's name.
        boot_ns: Time of the boot, at which the counters start, Unix nanoseconds.
        interval_seconds: Time between two polls.
        on_error: Called once for each reading that failed.
        sysfs: Where the kernel lists adapters.
        clock: Unix nanoseconds.
    """

    def __init__(
        self,
        *,
        hostname: str,
        boot_ns: int,
        interval_seconds: float,
        on_error: Callable[[str], None],
        sysfs: Path = SYSFS,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._hostname = hostname
        self._sysfs = sysfs
        self._clock = clock
        self._starts = KeyedStarts(boot_ns)
        self._ended: EndedSeries[str] = EndedSeries()
        pace = RefreshPolicy(interval_seconds, KEPT_INTERVALS * interval_seconds + SLOWEST_READ_SECONDS)
        self._reading = Refreshed(NAME, self._read, _NodePorts(), pace=pace, on_error=on_error)

    def start(self) -> "InfinibandSource":
        """Start the reading thread, and wait for the first reading, `FIRST_SECONDS` at most."""
        self._reading.start()
        self._reading.wait_for_first(FIRST_SECONDS)
        return self

    def refresh(self) -> None:
        """Read once, now, on the caller's thread."""
        self._reading.refresh()

    def poll(self, now_ns: int) -> SourceBatch:
        """Return every series of every port as of its last reading, and a last sample without value of ended ones."""
        node = self._reading.value
        self._reading.soon()
        own = {"Hostname": self._hostname}
        samples = [one for port in node.ports for one in port_samples(port, own, node.time_ns, self._starts)]
        return SourceBatch(samples=tuple(self._ended.complete(self._hostname, samples, now_ns)))

    def close(self) -> None:
        """Read no more; safe to call twice."""
        self._reading.close()

    def _read(self) -> _NodePorts | None:
        time_ns = self._clock()
        found = read_ports(self._sysfs)
        return None if found is None else _NodePorts(time_ns, found)


def port_samples(port: PortReading, base: Mapping[str, str], time_ns: int, starts: KeyedStarts) -> Iterator[Sample]:
    """Every series of a port.

    Args:
        port: The port at one moment.
        base: Labels of its node.
        time_ns: Time of the reading, Unix nanoseconds.
        starts: Start times of the node's counters.
    """
    known = {**base, "device": port.device, "port": port.port, "link_layer": port.link_layer}
    for metric, value, more in _values(port):
        own = labels(**known, **more)
        yield Sample(metric, own, time_ns, value, _start_ns(metric, own, value, time_ns, starts))


def _start_ns(metric: Metric, own: Labels, value: float, time_ns: int, starts: KeyedStarts) -> int:
    if metric.kind is not Kind.COUNTER:
        return 0
    return starts((metric.otlp_name, *(text for _, text in own)), value, time_ns)


def _values(port: PortReading) -> Iterator[tuple[Metric, float, dict[str, str]]]:
    """The known values of a port: row, value, additional labels."""
    gauges = (
        (infiniband.STATE, port.state),
        (infiniband.PHYSICAL_STATE, port.physical_state),
        (infiniband.RATE, port.rate_bytes_per_second),
    )
    for metric, value in gauges:
        if value is not None:
            yield metric, value, {}
    for name, count in port.counters.items():
        if name in ports.DATA_FILES:
            yield infiniband.IO, count * ports.BYTES_PER_WORD, {"direction": ports.DATA_FILES[name]}
        elif name in ports.PACKET_FILES:
            yield infiniband.PACKETS, count, {"direction": ports.PACKET_FILES[name]}
        elif name == ports.WAIT_FILE:
            yield infiniband.TRANSMIT_WAIT, count, {}
        elif name in ports.CONGESTION_FILES:
            yield infiniband.CONGESTION, count, {"event": name}
        else:
            yield infiniband.ERRORS, count, {"error": name}
