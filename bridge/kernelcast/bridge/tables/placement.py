"""Placement of a series on `/metrics`, as inputs and `Translator` make it: family, labels, writer and producer."""

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
        help: Help text, used if the family is new.
        labels: `a="b",c="d"`, escaped, without braces.
        cumulative: Whether its start time counts.
        writer: The resource and scope that write it, or another key of its writer; one writer has one target.
        unit: The family's unit in Prometheus' words, the end of its name (before `_total`); empty if it has none.
        producer: Its `job` and `instance`, empty if unknown.
        target: The resource's other attributes, if they are to appear in `target_info`.
        part_of: Name of the summary whose sums or counts these are; else empty.
        host: Unique id of the host that the resource names; empty if it names none.
        source: Its metric's name on the wire; empty if that is Prometheus' own.
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
    source: str = ""


class SeriesOrigin(NamedTuple):
    """Writer and producer of series; see `Placement`."""

    writer: Hashable
    producer: tuple[str, str]
    target: Attributes
    host: str = ""
