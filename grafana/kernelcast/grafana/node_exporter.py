"""Metrics of node_exporter that the page `node` and the alerts of ports use, where a site has them.

Source: prometheus/node_exporter, collector/infiniband_linux.go. Newer releases have RoCE's own counters, too.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NODE_NAME: Final = "node_uname_info"
NODE_CPU: Final = "node_cpu_seconds_total"
NODE_MEMORY_FREE: Final = "node_memory_MemAvailable_bytes"
NODE_MEMORY: Final = "node_memory_MemTotal_bytes"


def _counters(**words: str) -> Mapping[str, str]:
    """Counters of a port by their names, with what they count in words."""
    return MappingProxyType({f"node_infiniband_{name}_total": word for name, word in words.items()})


PORT_STATE: Final = "node_infiniband_state_id"
"""Logical state of a port of an InfiniBand or RoCE adapter: 1 down, 2 initialising, 3 armed, 4 active."""
PORT_RATE: Final = "node_infiniband_rate_bytes_per_second"
PORT_RECEIVED: Final = "node_infiniband_port_data_received_bytes_total"
PORT_TRANSMITTED: Final = "node_infiniband_port_data_transmitted_bytes_total"
PORT_WAITS: Final = "node_infiniband_port_transmit_wait_total"
"""Ticks in which a port had data to send and could not send it, for example for lack of credits."""
PORT_PHYSICAL_ERRORS: Final = _counters(
    symbol_error="symbol error",
    link_downed="link downed",
    link_error_recovery="link recovery",
    local_link_integrity_errors="link integrity",
    excessive_buffer_overrun_errors="buffer overrun",
    port_errors_received="packet with an error",
    port_receive_remote_physical_errors="physical error elsewhere",
)
"""Errors of the physical link, in words; others are about the subnet or the load."""
PORT_LOSSES: Final = _counters(
    port_discards_transmitted="discarded",
    out_of_sequence_packets_received="out of sequence",
    packet_sequence_errors="sequence error",
    local_ack_timeout_errors="timeout",
)
"""Errors of the transport, in words: packets were lost on the way."""
PORT_CONGESTION: Final = _counters(
    np_cnp_packets_sent="congestion notified",
    np_ecn_marked_roce_packets_received="marked packet",
    rp_cnp_packets_handled="slowed down",
    roce_slow_restart="slow restart",
)
"""Congestion notifications of RoCE, in words."""
_PORT_METRICS: Final = (PORT_STATE, PORT_RATE, PORT_RECEIVED, PORT_TRANSMITTED, PORT_WAITS)
_PORT_COUNTERS: Final = (*PORT_PHYSICAL_ERRORS, *PORT_LOSSES, *PORT_CONGESTION)

LABELS: Final = MappingProxyType(
    {
        NODE_NAME: frozenset({"nodename"}),
        NODE_CPU: frozenset({"cpu", "mode"}),
        NODE_MEMORY_FREE: frozenset[str](),
        NODE_MEMORY: frozenset[str](),
        **dict.fromkeys((*_PORT_METRICS, *_PORT_COUNTERS), frozenset({"device", "port"})),
    }
)
"""Labels of each, beside `job` and `instance`. Source: prometheus/node_exporter."""


def of_node(expr: str) -> str:
    """An expression by `instance`, with the node's name: node_exporter writes that on one series only.

    The group makes it one series for each node also where two jobs scrape the node_exporter.
    """
    return _with_name(expr, f'{NODE_NAME}{{nodename=~"$hostname"}}')


def of_host(expr: str) -> str:
    """An expression by `instance`, with the node's name in `Hostname`, as in the series of kernelcast; for an alert."""
    return f'label_replace({_with_name(expr, NODE_NAME)}, "Hostname", "$1", "nodename", "(.+)")'


def _with_name(expr: str, names: str) -> str:
    return f"({expr}) * on (instance) group_left (nodename) group by (instance, nodename) ({names})"
