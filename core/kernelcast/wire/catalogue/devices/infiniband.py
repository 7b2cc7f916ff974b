"""Metrics of the ports of InfiniBand and RoCE adapters, which `exporter/infiniband` reads from /sys/class/infiniband.

node_exporter has the same files as `node_infiniband_*`; see docs/exporter.md for which of the two to use.
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric
from kernelcast.wire.catalogue.naming import kafka_metric

PORT_LABELS: Final = ("Hostname", "device", "port", "link_layer", "source")
_SYSFS: Final = "/sys/class/infiniband/*/ports/*"


def _gauge(name: str, help: str, unit: str, file: str) -> Metric:  # noqa: A002  the field's name
    name = f"kernelcast.infiniband.{name}"
    return kafka_metric(name, Kind.GAUGE, help, unit=unit, labels=PORT_LABELS, source=f"{_SYSFS}/{file}")


def _counter(name: str, help: str, unit: str, files: str, *labels: str) -> Metric:  # noqa: A002  the field's name
    return kafka_metric(
        f"kernelcast.infiniband.{name}",
        Kind.COUNTER,
        help,
        unit=unit,
        labels=(*PORT_LABELS, *labels),
        source=f"{_SYSFS}/{files}",
    )


STATE: Final = _gauge("port.state", "Logical state: 1 down, 2 initialising, 3 armed, 4 active.", "", "state")
PHYSICAL_STATE: Final = _gauge(
    "port.physical_state",
    "Physical state: 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 link error recovery.",
    "",
    "phys_state",
)
RATE: Final = _gauge("port.rate", "Signalling rate of the link as it is now, in one direction.", "By/s", "rate")
IO: Final = _counter(
    "port.io",
    'Data that the port carried; direction="receive" or "transmit".',
    "By",
    "counters/port_{rcv,xmit}_data, words of 4 bytes",
    "direction",
)
PACKETS: Final = _counter(
    "port.packets",
    'Packets that the port carried; direction="receive" or "transmit".',
    "{packet}",
    "counters/port_{rcv,xmit}_packets",
    "direction",
)
TRANSMIT_WAIT: Final = _counter(
    "port.transmit_wait",
    "Ticks in which the port had data to send and could not send it, for example for lack of credits.",
    "{tick}",
    "counters/port_xmit_wait",
)
ERRORS: Final = _counter(
    "port.errors",
    "Errors of the port, by the kernel's name of the counter.",
    "{error}",
    "counters/* and hw_counters/*",
    "error",
)
CONGESTION: Final = _counter(
    "port.congestion_events",
    "Congestion notifications of RoCE, by the kernel's name of the counter.",
    "{event}",
    "hw_counters/{np_*,rp_*,roce_*}",
    "event",
)

ROWS: Final = (STATE, PHYSICAL_STATE, RATE, IO, PACKETS, TRANSMIT_WAIT, ERRORS, CONGESTION)
