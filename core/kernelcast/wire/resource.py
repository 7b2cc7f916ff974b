"""Attributes of OTLP resources that kernelcast adds.

The exporter sends them; the bridge distinguishes hosts by them.
"""

from typing import Final

BOOT_ID: Final = "kernelcast.boot.id"
"""The kernel's boot id: one per start of a machine, the same in all its containers, never the same on two machines.

Host names, machine ids and instance ids repeat where machines are cloned or where two data centres name theirs alike.
"""
