"""InfiniBand ports of a simulated node: one of 400 Gb/s for each GPU, as in a DGX H100."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kernelcast.exporter.infiniband import ports
from kernelcast.exporter.infiniband.ports import PortReading

RATE_BYTES_PER_SECOND: Final = 50e9
SHARE_OF_COLLECTIVES: Final = 0.1
"""Share of a collective's bytes that leave the node."""
_ACTIVE: Final = 4
_LINK_UP: Final = 5
_PACKET_BYTES: Final = 4096
_ERRORS: Final = ("link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards", "symbol_error")
_HARDWARE_ERRORS: Final = ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err")
_CONGESTION: Final = ("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled")


@dataclass(frozen=True, slots=True)
class PortTraffic:
    """Bytes that a port sent since the start; it received as many."""

    sent_bytes: int


def port_readings(traffic: Sequence[PortTraffic]) -> Iterator[PortReading]:
    """The ports, as the kernel would describe them."""
    for number, one in enumerate(traffic):
        words, packets = one.sent_bytes // ports.BYTES_PER_WORD, one.sent_bytes // _PACKET_BYTES
        counters = (
            dict.fromkeys(ports.DATA_FILES, words)
            | dict.fromkeys(ports.PACKET_FILES, packets)
            | {ports.WAIT_FILE: packets // 100}
            | dict.fromkeys((*_ERRORS, *_HARDWARE_ERRORS, *_CONGESTION), 0)
        )
        yield PortReading(
            device=f"mlx5_{number}",
            port="1",
            link_layer="InfiniBand",
            state=_ACTIVE,
            physical_state=_LINK_UP,
            rate_bytes_per_second=RATE_BYTES_PER_SECOND,
            counters=counters,
        )
