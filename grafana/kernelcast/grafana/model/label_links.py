"""Links on labels: every node, GPU, program, kernel, tunable and metric that a panel shows leads to its page.

`panels` and `tables` add them by the labels in legends and columns.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from kernelcast.grafana.addresses import GPUS, KERNELS
from kernelcast.grafana.model.links import OWN_VALUE, Link

_TITLES: Final = {
    "Hostname": ("Node", GPUS),
    "gpu": ("GPU", GPUS),
    "program": ("Program", KERNELS),
    "kernel": ("Kernel", KERNELS),
    "tunable": ("Hints for this program", KERNELS),
    "metric": ("Forecast", GPUS),
}
_WITH: Final = {"gpu": ("Hostname",), "tunable": ("program",), "metric": ("Hostname", "gpu")}
"""Labels that a page needs beside the name itself."""
_ALSO: Final = {"kernel": ("program",)}
"""Labels that make the choice narrower where they are shown."""
_VARIABLE: Final = {"Hostname": "hostname", "gpu": "gpu", "program": "program", "kernel": "kernel", "metric": "metric"}


def of_label(label: str, shown: Collection[str]) -> Link | None:
    """The link of one label, or None if it has no page or the panel lacks a label of that page.

    Args:
        label: Label whose values a panel shows.
        shown: All labels that the panel shows.
    """
    needed = _WITH.get(label, ())
    if label not in _TITLES or not {*needed} <= {*shown}:
        return None
    title, page = _TITLES[label]
    also = (one for one in _ALSO.get(label, ()) if one in shown)
    return Link(title, page, {_VARIABLE[one]: one for one in (*needed, *also, label) if one in _VARIABLE})


def of_labels(labels: Iterable[str]) -> Iterator[Link]:
    """The links of every label that has a page, the narrowest last."""
    shown = tuple(dict.fromkeys(labels))
    for label in _TITLES:
        if label in shown and (link := of_label(label, shown)):
            yield link


def in_column(label: str, headings: dict[str, str]) -> Link | None:
    """The link of a table's column, which finds the other values by their headings.

    Args:
        label: The column's field.
        headings: Field to heading, of all columns.
    """
    link = of_label(label, headings)
    if link is None:
        return None
    values = {name: OWN_VALUE if field == label else headings[field] for name, field in link.variables.items()}
    return Link(link.title, link.page, values, link.constants)
