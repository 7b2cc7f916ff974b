"""Contents of the topic of findings as one reader has them: the newest state of each finding, and its newest mark.

The predictor and `kernelcast findings` each fill one from the topic's messages.
"""

from dataclasses import dataclass, field
from typing import Any

from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import FINDING_TYPE, MARK_TYPE, finding_from, mark_from
from kernelcast.wire.findings import Finding, Mark


@dataclass(slots=True)
class KnownFindings:
    """Findings and marks as read so far; messages may come in any order. One thread uses it.

    Attributes:
        findings: The newest state of each finding, by its id.
        marks: The newest mark of each finding, by the finding's id.
        unusable: Number of messages that hold neither.
    """

    findings: dict[str, Finding] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    unusable: int = 0

    def add(self, body: bytes) -> tuple[Finding | None, Finding] | None:
        """Keep the finding or mark of a message's value, unless a newer one is known; ignore other types of event.

        Returns:
            The finding as it was known before, None where it was not, and as the message has it; None for others.
        """
        try:
            return self._keep(decode_event(body))
        except EventError:
            self.unusable += 1
            return None

    def _keep(self, event: dict[str, Any]) -> tuple[Finding | None, Finding] | None:
        if event["type"] == FINDING_TYPE:
            finding = finding_from(event)
            before = self.findings.get(finding.finding_id)
            if before is None or before.updated_ns <= finding.updated_ns:
                self.findings[finding.finding_id] = finding
            return before, finding
        if event["type"] == MARK_TYPE:
            mark = mark_from(event)
            last = self.marks.get(mark.finding_id)
            if last is None or last.time_ns <= mark.time_ns:
                self.marks[mark.finding_id] = mark
        return None

    def forget(self, before_ns: int) -> None:
        """Forget findings that were last written, and marks that were given, before a time."""
        self.findings = {each: one for each, one in self.findings.items() if one.updated_ns >= before_ns}
        self.marks = {each: one for each, one in self.marks.items() if one.time_ns >= before_ns}
