"""Results of all nodes' searches of one space: configurations that failed, and configurations that were kept.

The predictor collects them from outcomes and writes one event for each space, device model and code version. Exporters
pass it on to programs, which skip the failed ones and begin with the kept ones.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from kernelcast.wire.cloudevents import envelope, joined_key
from kernelcast.wire.event_data import event_data, to_data

EXPERIENCE_TYPE: Final = "dev.kernelcast.experience.v1"
MAX_FAILED: Final = 256
MAX_KEPT: Final = 5
MAX_FAILED_BYTES: Final = 32 * 1024
"""Configurations of each list, and bytes of the failed ones as JSON: the event must fit into one frame on the probe's
socket."""
PROVED_NODES: Final = 2
"""Nodes on which a configuration must have been kept before all other nodes begin with it. Until then one node, named
in `KeptElsewhere.second`, begins with it, so that a value that suits one node only does not spread."""


@dataclass(frozen=True, slots=True)
class KeptElsewhere:
    """A configuration that was kept.

    Attributes:
        value: The configuration, as text.
        nodes: Number of nodes that kept it.
        second: The node that tries it next; empty once `PROVED_NODES` have kept it.
    """

    value: str
    nodes: int
    second: str = ""

    def is_for(self, node: str) -> bool:
        """Whether a node begins its search with it."""
        return self.nodes >= PROVED_NODES or self.second == node


@dataclass(frozen=True, slots=True)
class Experience:
    """Results of the searches of one space.

    Attributes:
        program, space, device_model, code_version: Their subject; the space with function and shape.
        failed: Configurations that failed, as text.
        kept: Configurations that were kept, those of most nodes first.
    """

    program: str
    space: str
    device_model: str = ""
    code_version: str = ""
    failed: tuple[str, ...] = ()
    kept: tuple[KeptElsewhere, ...] = ()

    @property
    def key(self) -> str:
        """The record key."""
        return joined_key("experience", self.program, self.space, self.device_model, self.code_version)


def experience_event(experience: Experience, *, source: str, time_ns: int) -> dict[str, Any]:
    """Return the CloudEvent that carries results of searches."""
    return envelope(to_data(experience), kind=EXPERIENCE_TYPE, subject=experience.key, source=source, time_ns=time_ns)


def experience_from(event: dict[str, Any]) -> Experience:
    """Return the results that an event carries.

    Raises:
        EventError: It carries none.
    """
    experience = event_data(event, Experience, EXPERIENCE_TYPE)
    if len(experience.failed) <= MAX_FAILED and len(experience.kept) <= MAX_KEPT:
        return experience
    return replace(experience, failed=experience.failed[:MAX_FAILED], kept=experience.kept[:MAX_KEPT])
