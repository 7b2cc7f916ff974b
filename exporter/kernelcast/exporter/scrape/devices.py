"""Turns lines of other vendors' exporters into the rows that all accelerators share.

Series of one device and row are brought together: of memory, energy and errors the sum, of all others the highest.
"""

from collections import defaultdict
from typing import Final

from kernelcast.runtime.prometheus_text import TextSample
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue.devices import accelerator
from kernelcast.wire.catalogue.devices.vendors import VENDORS, Vendor, VendorSeries

MAX_LABEL_CHARACTERS: Final = 128
_SUMMED: Final = frozenset({accelerator.MEMORY_USED, accelerator.MEMORY_TOTAL, accelerator.ENERGY, accelerator.ERRORS})

Key = tuple[Metric, tuple[tuple[str, str], ...]]


def _names() -> dict[str, list[tuple[Vendor, VendorSeries | None]]]:
    found: defaultdict[str, list[tuple[Vendor, VendorSeries | None]]] = defaultdict(list)
    for vendor in VENDORS.values():
        for one in vendor.series:
            for prefix in vendor.prefixes:
                found[prefix + one.name].append((vendor, one))
        if vendor.model[0]:
            found[vendor.model[0]].append((vendor, None))
    return dict(found)


NAMES: Final = _names()
"""By a name on a page, what it may be; None: the model of a device."""


class DeviceValues:
    """Values of the devices of one page."""

    def __init__(self) -> None:
        self._values: dict[Key, float] = {}
        self._models: dict[str, str] = {}

    @property
    def values(self) -> dict[Key, float]:
        """Values by row and labels."""
        found = dict[Key, float]()
        for (row, own), value in self._values.items():
            model = self._models.get(dict(own).get("UUID", ""))
            found[row, tuple(sorted((*own, ("modelName", model)))) if model else own] = value
        return found

    def add(self, sample: TextSample) -> None:
        """Take a sample of the page; one of another name changes nothing."""
        known = NAMES.get(sample.name)
        if known is None:
            return
        own = {name.lower(): value for name, value in sample.labels.items()}
        for vendor, one in known:
            if one is None:
                (uuid,) = vendor.labels["UUID"]
                self._models[own.get(uuid, "")] = own.get(vendor.model[1], "")[:MAX_LABEL_CHARACTERS]
            elif (one.zero or sample.value) and all(own.get(name, "") == value for name, value in one.where.items()):
                key = (one.row, _labels(vendor, one, own))
                value, before = sample.value * one.factor, self._values.get(key)
                if before is not None:
                    value = value + before if one.row in _SUMMED else max(value, before)
                self._values[key] = value


def _labels(vendor: Vendor, one: VendorSeries, own: dict[str, str]) -> tuple[tuple[str, str], ...]:
    found = {"accelerator": vendor.accelerator, **one.labels}
    for label, names in vendor.labels.items():
        found[label] = next((own[name] for name in names if own.get(name)), "")
    if one.index:
        found["index"] = own.get(one.index, "")
    return tuple(sorted((name, value[:MAX_LABEL_CHARACTERS]) for name, value in found.items() if value))
