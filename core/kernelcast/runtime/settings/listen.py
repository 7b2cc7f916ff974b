"""Parses listen addresses as Prometheus's tools write them: `HOST:PORT`, `:PORT`, `[::1]:PORT`."""

from typing import Final

MAX_PORT: Final = 65_535


def parse_listen_address(address: str) -> tuple[str, int]:
    """Split an address into host and port; an empty host means every interface.

    Raises:
        ValueError: The address is malformed; the text names the fault.
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit():
        raise ValueError("it must be HOST:PORT, :PORT or [IPV6]:PORT")
    if int(port) > MAX_PORT:
        raise ValueError(f"the highest port is {MAX_PORT}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 host must be in brackets, as in [::1]:19400")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Format an address as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
