"""Metrics of node_exporter that the page `node` shows beside ours, where a site has them."""

from types import MappingProxyType
from typing import Final

NODE_NAME: Final = "node_uname_info"
NODE_CPU: Final = "node_cpu_seconds_total"
NODE_MEMORY_FREE: Final = "node_memory_MemAvailable_bytes"
NODE_MEMORY: Final = "node_memory_MemTotal_bytes"

LABELS: Final = MappingProxyType(
    {
        NODE_NAME: frozenset({"nodename"}),
        NODE_CPU: frozenset({"cpu", "mode"}),
        NODE_MEMORY_FREE: frozenset[str](),
        NODE_MEMORY: frozenset[str](),
    }
)
"""Labels of each, beside `job` and `instance`. Source: prometheus/node_exporter."""


def of_node(expr: str) -> str:
    """An expression by `instance`, with the node's name: node_exporter writes that on one series only.

    The group makes it one series for each node also where two jobs scrape the node_exporter.
    """
    name = f'group by (instance, nodename) ({NODE_NAME}{{nodename=~"$hostname"}})'
    return f"({expr}) * on (instance) group_left (nodename) {name}"
