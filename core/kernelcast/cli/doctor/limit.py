"""Checks that may never come back: a driver in trouble hangs whoever asks it, and then the doctor must say so."""

import threading
from collections.abc import Callable, Iterable
from typing import Final

from kernelcast.cli.doctor.finding import Finding, fail

SECONDS: Final = 15.0
"""NVML answers within milliseconds; a first look at many GPUs that are asleep takes seconds."""


def within(check: Callable[[], Iterable[Finding]], *, name: str, seconds: float = SECONDS) -> list[Finding]:
    """What a check finds in time; where it hangs, what it found until then, and that it hangs.

    Args:
        check: Runs on a thread of its own, which is left behind where it hangs.
        name: What is asked, for people.
        seconds: How long it may take.

    Raises:
        Exception: What the check raised.
    """
    found: list[Finding] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            for finding in check():
                found.append(finding)  # noqa: PERF402  one by one: what came before it hung counts
        except Exception as error:  # noqa: BLE001  raised below, where the caller is
            failed.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if failed:
        raise failed[0]
    if not thread.is_alive():
        return found
    remedy = "the driver is in trouble: look for Xid and stuck tasks in the kernel's log; drain the node and reboot"
    return [*found, fail(name, f"no answer within {seconds:g} s", remedy)]
