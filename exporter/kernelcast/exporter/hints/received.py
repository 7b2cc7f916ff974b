"""An outcome as a program has sent it: from the probe's session to `OutcomeRelay` and `OutcomeLog`."""

from dataclasses import dataclass

from kernelcast.wire.events import Outcome


@dataclass(frozen=True, slots=True)
class ReceivedOutcome:
    """An outcome, the id of its event, and its process.

    Attributes:
        outcome: The outcome, with the facts that the exporter knows of its process.
        event_id: Id that the program generated once; readers recognise a repeat by it.
        nonce: Random id of the process that sent it, from its `hello` frame.
    """

    outcome: Outcome
    event_id: str
    nonce: str
