"""The description of a kind of fault: its help, its default place, and its parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ALL: Final = -1
"""As a node or a GPU: every one."""


@dataclass(frozen=True, slots=True)
class FaultParameter:
    """A numeric parameter of a kind of fault: its default, its limits and its meaning."""

    default: float
    minimum: float
    maximum: float
    help: str


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault or of background.

    Attributes:
        help: One line for people.
        gpu: Default GPU; `ALL` for the whole node.
        per_kernel: Whether it concerns one kernel.
        parameters: Its parameters besides node, gpu, kernel, start and length.
    """

    help: str
    gpu: int = 0
    per_kernel: bool = False
    parameters: Mapping[str, FaultParameter] = field(default_factory=dict)
