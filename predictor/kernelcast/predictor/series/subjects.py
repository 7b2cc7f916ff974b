"""Identity of a window's series (`Subject`): metric, labels, and the conversion of points to one value per interval."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kernelcast.columnar import Attributes
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.kernels import COMPUTE, OTHER

VARIANT: Final = kernel.VARIANT_SECONDS.prometheus_name
DURATION: Final = kernel.DURATION.prometheus_name
DEVICE_NAMES: Final = frozenset(row.prometheus_name for row in device.ROWS)

DeviceKey = tuple[str, str, str]
"""Hostname, UUID, MIG instance: the labels that a kernel's series and its GPU's series share."""


class Form(IntEnum):
    """Conversion of points to the value of an interval.

    LEVEL: the last point. RATE: the increase of a counter per second. MEAN: the increase of a sum over that of its
    count, which is load-independent where both belong to one configuration.
    """

    LEVEL = 0
    RATE = 1
    MEAN = 2


@dataclass(frozen=True, slots=True)
class Subject:
    """Identity of one series.

    Attributes:
        metric: Its Prometheus name.
        form: How its points become values.
        labels: Sorted pairs, as they are on the wire.
    """

    metric: str
    form: Form
    labels: Attributes

    def label(self, name: str) -> str:
        """A label's value; empty where the series has no such label."""
        return next((value for key, value in self.labels if key == name), "")

    @property
    def device(self) -> DeviceKey:
        """The GPU it belongs to."""
        return self.label("Hostname"), self.label("UUID"), self.label("GPU_I_ID")

    @property
    def of_device(self) -> bool:
        """Whether it is a device metric rather than a program's."""
        return self.metric in DEVICE_NAMES

    @property
    def program(self) -> str:
        """The program, for series of programs."""
        return self.label("program")

    @property
    def is_kernel_time(self) -> bool:
        """Whether it is the mean duration of one kernel, or of one of its variants."""
        return self.metric in {DURATION, VARIANT}

    @property
    def is_judged_kernel(self) -> bool:
        """Whether its duration is its own speed: neither a wait for peers nor a changing mixture."""
        return (
            self.is_kernel_time
            and self.label("kernel_class") in {COMPUTE, ""}
            and self.label("kernel") not in {OTHER, ""}
        )

    @property
    def without_variant(self) -> "Subject":
        """The series that Prometheus knows: that of the kernel as a whole."""
        if self.metric != VARIANT:
            return self
        return Subject(DURATION, Form.MEAN, tuple(pair for pair in self.labels if pair[0] != "variant"))

    @property
    def key(self) -> bytes:
        """The record key of its forecasts: its host or its program."""
        return (self.label("Hostname") if self.of_device else self.program).encode()
