"""The lines that the first process of a node writes: what is measured and where to look, or why not and what to do.

The first line is written once the program has made a step or used a GPU, and the exporter has answered; a refusal or
the failure of an exporter beside the program that comes later is a line of its own. Each is written once.
"""

import errno
import os
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

from kernelcast.probe.terminal.situation import Situation

ANSWER_SECONDS: Final = 3.0
"""Time for an exporter's answer; one that is busy may give none by then."""
BESIDE_SECONDS: Final = 30.0
"""Time for an exporter that the program has just started."""
LOOK_SECONDS: Final = 0.25
CUPTI_COST: Final = "a training step of a small GPT took 1.10 of its time with it on an H100"
REFUSES: Final = "the exporter refuses this program"
NO_EXPORTER: Final = "no exporter runs beside the program"
_DENIED: Final = os.strerror(errno.EACCES)
"""Reason of a failed attempt to connect where a file's mode forbids it, whether or not an exporter runs."""


class Announcement:
    """Decides when there is something to say. Only the probe's thread uses it.

    Args:
        write: Writes a line to the program's user; it never raises.
        clock: Monotonic seconds.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = monotonic) -> None:
        self._write = write
        self._clock = clock
        self._began_at: float | None = None
        self._said = False
        self._owes_page = False
        self._troubles: set[str] = set()

    def poll(self, situation: Situation, *, ends: bool = False) -> float:
        """Write what has become known.

        Args:
            situation: State of the probe.
            ends: The program ends: what is not known by now stays so.

        Returns:
            Seconds until it is to be called again.
        """
        if self._said:
            self._add_later(situation)
            return LOOK_SECONDS if self._owes_page else inf
        if not situation.has_begun:
            return inf if ends else LOOK_SECONDS
        if self._began_at is None:
            self._began_at = self._clock()
        if not (ends or self._is_known(situation)):
            return LOOK_SECONDS
        self._said = True
        self._owes_page = situation.starts_exporter and not situation.reception.page
        self._troubles |= {situation.reception.refusal, situation.trouble}
        self._write(f"kernelcast: {measured(situation)}; {place(situation, ends=ends)}")
        return LOOK_SECONDS if self._owes_page else inf

    def _is_known(self, situation: Situation) -> bool:
        waited_seconds = self._clock() - (self._began_at or 0.0)
        if waited_seconds >= (BESIDE_SECONDS if situation.starts_exporter else ANSWER_SECONDS):
            return True
        if situation.uses_gpu and not situation.reports_itself and situation.status is None:
            return False
        if situation.reception.page or situation.reception.refusal or situation.trouble:
            return True
        return bool(situation.failure) and not situation.starts_exporter

    def _add_later(self, situation: Situation) -> None:
        for text, said in ((situation.reception.refusal, REFUSES), (situation.trouble, NO_EXPORTER)):
            if text and text not in self._troubles:
                self._troubles.add(text)
                self._write(f"kernelcast: {said}: {text}")
        if self._owes_page and situation.reception.page:
            self._owes_page = False
            self._write(f"kernelcast: {place(situation)}")


def measured(situation: Situation) -> str:
    """Say what is measured, and how, or why not."""
    own = "steps and data" if situation.framework == "PyTorch" else "steps"
    if situation.reports_itself:
        return "measured is what the program reports" + (f", source {situation.source}" if situation.source else "")
    if not situation.uses_gpu:
        return f"{situation.framework or 'the program'} has not used a GPU; {own} are measured, kernels cannot be"
    status = situation.status
    method, reason = (status.method, status.reason) if status else ("", "")
    if status is None or status.state == "off":
        return f"{own} are measured, kernels are not: {_remedy(situation, reason)}"
    how = {"cupti": "by CUPTI", "event": "by sampled CUDA events", "count": "by counting launches"}.get(method, method)
    return f"{own} are measured, and kernels {how}" + (f" ({reason})" if reason else "")


def place(situation: Situation, *, ends: bool = False) -> str:
    """Say where the user can look, or why nowhere and what to do.

    Args:
        situation: State of the probe.
        ends: Whether the program ends.
    """
    page, path = situation.reception.page, situation.socket_path
    if situation.reception.refusal:
        return f"{REFUSES}: {situation.reception.refusal}"
    if page:
        return f"see {page} or run: kernelcast top {urlsplit(page).netloc if page.startswith('http:') else page}"
    if situation.trouble:
        return f"{NO_EXPORTER}: {situation.trouble}"
    if situation.starts_exporter:
        too_short = "it was too short for a page; --report FILE.json keeps what was measured"
        return too_short if ends else "the page of the exporter beside it is not up yet"
    if situation.is_connected:
        return f"the exporter at {path} has it"
    return _not_connected(situation)


def _not_connected(situation: Situation) -> str:
    path, beside = situation.socket_path, "one beside the program: kernelcast probe --standalone"
    reason = f" ({situation.failure})" if situation.failure else ""
    if situation.failure == _DENIED:
        return (
            f"user {os.getuid()} may not connect to {path}{reason}: let this user enter its directory and write to the "
            f"socket, or start {beside}"
        )
    return f"found no exporter at {path}{reason}: start `kernelcast exporter` on this node, or {beside}"


def _remedy(situation: Situation, reason: str) -> str:
    if not situation.cupti:
        return f"KERNELCAST_CUPTI=1 measures them ({CUPTI_COST})"
    return reason or "no method of measurement has begun yet"
