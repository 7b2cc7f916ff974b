"""Reads the ports of InfiniBand and RoCE adapters from sysfs: the files of a fixed list, each a few bytes.

Source: Linux, Documentation/ABI/stable/sysfs-class-infiniband, and drivers/infiniband/hw/mlx5/counters.c.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

SYSFS: Final = Path("/sys/class/infiniband")
MAX_PORTS: Final = 64
"""Limit of ports of a node; further ones are not read."""
MAX_BYTES: Final = 64
"""Limit of bytes read of a file; the kernel writes one number, or a number and a word."""
BYTES_PER_WORD: Final = 4
"""`port_rcv_data` and `port_xmit_data` count words of four bytes."""
LARGEST: Final = (2**63 - 1) // BYTES_PER_WORD
"""Limit of a counter, so that a sample can carry it in bytes too; a failed adapter gives all ones in 64 bits."""
BITS_PER_BYTE: Final = 8
BITS_PER_GIGABIT: Final = 1e9

DATA_FILES: Final = MappingProxyType({"port_rcv_data": "receive", "port_xmit_data": "transmit"})
PACKET_FILES: Final = MappingProxyType({"port_rcv_packets": "receive", "port_xmit_packets": "transmit"})
WAIT_FILE: Final = "port_xmit_wait"
ERROR_FILES: Final = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_constraint_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "symbol_error",
)
HARDWARE_ERROR_FILES: Final = (
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "rx_icrc_encapsulated",
)
CONGESTION_FILES: Final = (
    "np_cnp_sent",
    "np_ecn_marked_roce_packets",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rp_cnp_handled",
    "rp_cnp_ignored",
)
COUNTER_FILES: Final = (*DATA_FILES, *PACKET_FILES, WAIT_FILE, *ERROR_FILES)
HARDWARE_FILES: Final = (*HARDWARE_ERROR_FILES, *CONGESTION_FILES)

_NUMBER: Final = re.compile(r"\d+")
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?) Gb/sec\b")


@dataclass(frozen=True, slots=True)
class PortReading:
    """One port at one moment.

    Attributes:
        device: The adapter, such as `mlx5_0`.
        port: Its number on the adapter.
        link_layer: `InfiniBand` or `Ethernet` (RoCE); empty where the kernel does not say.
        state: Logical state, 4 is active; None if it cannot be read.
        physical_state: 5 is link up; None if it cannot be read.
        rate_bytes_per_second: Signalling rate; None if it cannot be read.
        counters: The kernel's values by file name, without counters that the driver lacks.
    """

    device: str
    port: str
    link_layer: str = ""
    state: int | None = None
    physical_state: int | None = None
    rate_bytes_per_second: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


def read_ports(sysfs: Path = SYSFS) -> tuple[PortReading, ...] | None:
    """Every port of the node, at most `MAX_PORTS`; None where the kernel has no such adapter.

    The virtual functions of an adapter (SR-IOV) come last; a node may have hundreds.
    """
    try:
        devices = sorted(sysfs.iterdir(), key=lambda device: ((device / "device/physfn").exists(), device.name))
    except FileNotFoundError:
        return None
    ports = [port for device in devices for port in _numbered(device / "ports")]
    return tuple(_read_port(port) for port in ports[:MAX_PORTS])


def _numbered(directory: Path) -> Iterator[Path]:
    try:
        yield from sorted(path for path in directory.iterdir() if path.name.isdigit())
    except OSError:
        return


def _read_port(port: Path) -> PortReading:
    rate = _RATE.search(_text(port / "rate"))
    counters = {name: _counter(port / "counters" / name) for name in COUNTER_FILES}
    hardware = {name: _counter(port / "hw_counters" / name) for name in HARDWARE_FILES}
    return PortReading(
        device=port.parent.parent.name,
        port=port.name,
        link_layer=_text(port / "link_layer"),
        state=_leading(_text(port / "state")),
        physical_state=_leading(_text(port / "phys_state")),
        rate_bytes_per_second=float(rate[1]) * BITS_PER_GIGABIT / BITS_PER_BYTE if rate else None,
        counters={name: value for name, value in (counters | hardware).items() if value is not None},
    )


def _counter(file: Path) -> int | None:
    """A file that holds a number up to `LARGEST` and nothing else; some drivers write `N/A (no PMA)`."""
    text = _text(file)
    return int(text) if _NUMBER.fullmatch(text) and int(text) <= LARGEST else None


def _leading(text: str) -> int | None:
    """The number before a word, as in `4: ACTIVE`."""
    found = _NUMBER.match(text)
    return int(found[0]) if found else None


def _text(file: Path) -> str:
    """A file's first bytes; empty where it cannot be read: drivers differ in which files they have."""
    try:
        with file.open("rb", buffering=0) as opened:
            return (opened.read(MAX_BYTES) or b"").decode(errors="replace").strip()
    except OSError:
        return ""
