"""The forms of `exporter.attribution`, for simulated nodes, whose owners stand on the series of their GPUs."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kernelcast.exporter.attribution.attribution import FORMS, INFO, LABELS, OFF
from kernelcast.exporter.simulate.nodes.owners import SimulatedOwners

__all__ = ["FORMS", "INFO", "LABELS", "OFF", "simulated"]


@contextmanager
def simulated(form: str) -> Iterator[None]:
    """Let nodes that are simulated within the block have this form, as `CurrentUsers` gives it to real ones."""
    with pytest.MonkeyPatch.context() as patch:
        if form != LABELS:
            as_labels = SimulatedOwners.labels_for
            patch.setattr(SimulatedOwners, "labels_for", lambda _self, _gpu: ({},))
            if form == INFO:
                patch.setattr(SimulatedOwners, "owners_of", as_labels)
            else:
                patch.setattr(SimulatedOwners, "process_labels", lambda _self, _gpu, _pid: {})
                patch.setattr(SimulatedOwners, "labels_of_pid", lambda _self, _gpu, _pid: {})
        yield
