"""Stop orders of people, and the file with which an exporter passes them to the programs of its node.

`kernelcast hints stop` and `resume` write an order, a CloudEvent on the topic of orders. Exporters read it and write
`STOPPED_FILE`; the probe reads the file. Orders have a topic of their own because readers of hints refuse other types
of event, and because a person may have the right to stop trials without the right to start them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.wire.cloudevents import envelope, joined_key
from kernelcast.wire.errors import EventError
from kernelcast.wire.event_data import event_data, to_data
from kernelcast.wire.identity import PROGRAM_PATTERN

STOP_TYPE: Final = "dev.kernelcast.stop.v1"
ANY: Final = "*"
"""In place of a program or node: all of them."""
STOPPED_FILE: Final = "hints.stopped"
"""Name of the file, in the folder of the probe's socket. It has a line for each stopped program: its name or `*`, a
tab, and the reason."""
LIFTED_BY: Final = "`kernelcast hints resume` lifts it"
"""End of an outcome's reason if a stop order ended the trial; the predictor may then propose the value again."""
MAX_FILE_BYTES: Final = 256 * 1024
"""Largest file that a program reads: some thousand names and reasons."""
MAX_REASON_CHARACTERS: Final = 500
"""Longest reason in a sentence."""
MAX_PERSON_CHARACTERS: Final = 128
"""Longest name of a person in a sentence."""


@dataclass(frozen=True, slots=True)
class StopOrder:
    """An order that stops trials, or lifts an earlier one; the newest order of a key replaces the older ones.

    Attributes:
        program: The program; `*` is every program.
        node: The node, as its exporter names it; `*` is every node.
        in_force: Whether trials are stopped; False lifts the order.
        reason: The reason, for people.
        by: Name of the person.
        time_ns: Its time, Unix nanoseconds.
    """

    program: str = ANY
    node: str = ANY
    in_force: bool = True
    reason: str = ""
    by: str = ""
    time_ns: int = 0

    @property
    def key(self) -> str:
        """The record key."""
        return joined_key("stop", self.program, self.node)

    def applies_to(self, node: str) -> bool:
        """Whether it stops programs on a node."""
        return self.in_force and self.node in (ANY, node)

    @property
    def sentence(self) -> str:
        """The order in a few words, for people."""
        return sentence_of("stopped", self.by, self.reason)


def stop_event(order: StopOrder, *, source: str) -> dict[str, Any]:
    """Return the CloudEvent that carries an order."""
    return envelope(to_data(order), kind=STOP_TYPE, subject=order.key, source=source, time_ns=order.time_ns)


def stop_from(event: dict[str, Any]) -> StopOrder:
    """Return the order that an event carries.

    Raises:
        EventError: It carries none.
    """
    order = event_data(event, StopOrder, STOP_TYPE)
    for name in (order.program, order.node):
        if not PROGRAM_PATTERN.fullmatch(name):
            raise EventError(
                f"event {event['id']} names {name!r}; a program or node is 1 to 128 printable characters, "
                f"`{ANY}` all of them; it is refused"
            )
    return order


def sentence_of(state: str, by: str, reason: str) -> str:
    """Return one line about an order or an answer: its state, the person and the reason, both shortened."""
    person = " ".join(by.split())[:MAX_PERSON_CHARACTERS]
    cause = " ".join(reason.split())[:MAX_REASON_CHARACTERS]
    return state + (f" by {person}" if person else "") + (f": {cause}" if cause else "")


def file_text(reasons: Mapping[str, str]) -> str:
    """Return the content of the file for stopped programs and their reasons; every program if they are too many."""
    lines = [f"{program}\t{' '.join(reason.split())}\n" for program, reason in sorted(reasons.items())]
    text = "".join(lines)
    if len(text.encode(errors="replace")) > MAX_FILE_BYTES:
        return f"{ANY}\tstop orders of {len(lines)} programs do not fit into this file: all programs are stopped\n"
    return text


def reasons_in(text: str) -> dict[str, str]:
    """Return the reasons by program from the content of the file."""
    pairs = (line.partition("\t") for line in text.split("\n") if line.strip())
    return {program: reason for program, _, reason in pairs}
