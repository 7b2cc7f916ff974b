"""Names and texts of pauses. During a pause no trial begins, and an open one waits, with the kept value, until its end.

The exporter writes the paused programs of its node to files beside the probe's socket, in the form of the file of
stopped programs (`wire.tuning.orders`); the probe reads them.
"""

from typing import Final

PAUSED_FILE: Final = "hints.paused"
SPACES_FILE: Final = "spaces.paused"
"""Programs whose own searches are paused, although hints may be tried."""
LATER: Final = "the value may be tried again later"
"""End of the reason of an outcome where a pause ended a trial."""
CHECKPOINT: Final = "checkpoint"
"""Name of the region in which a program writes a checkpoint."""
