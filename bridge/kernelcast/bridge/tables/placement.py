"""Where a series goes: its family, labels, writer and producer."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

from kernelcast.columnar import Attributes
from kernelcast.wire.catalogue import Kind


@dataclass(frozen=True, slots=True)
class Placement:
    """Placement of a series: family, labels, writer and producer.

    Attributes:
        name: Its family.
        kind: The family's kind.
        help: The family's help, should it be new.
        labels: `a="b",c="d"`, escaped, without braces.
        cumulative: Whether its start time counts.
        writer: The resource and scope that write it, or another key of its writer; one writer has one
            target.
        unit: Prometheus' word for the family's unit, which its name ends with (before `_total`); empty without.
        producer: Its `job` and `instance`, empty where unknown.
        target: The resource's other attributes, where `target_info` is to tell them.
        part_of: The summary whose sums or counts these are; else empty.
        host: The host that the resource names, by an id that no other host has; empty where it names none.
    """

    name: str
    kind: Kind
    help: str
    labels: bytes
    cumulative: bool
    writer: Hashable
    unit: str = ""
    producer: tuple[str, str] = ("", "")
    target: Attributes = ()
    part_of: str = ""
    host: str = ""


class SeriesOrigin(NamedTuple):
    """Writer and producer of series; see `Placement`."""

    writer: Hashable
    producer: tuple[str, str]
    target: Attributes
    host: str = ""
