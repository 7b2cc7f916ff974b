"""An outcome as a program has sent it."""

from dataclasses import dataclass

from kernelcast.wire.events import Outcome


@dataclass(frozen=True, slots=True)
class ReceivedOutcome:
    """An outcome, the id of its event, and its process.

    Attributes:
        outcome: The outcome, with the facts that the exporter knows of its process.
        event_id: The id of its event, drawn once by the program.
        nonce: The process that sent it.
    """

    outcome: Outcome
    event_id: str
    nonce: str
