"""Time limit for checks that may hang: a faulty driver may never return, and the doctor must report that.

`command` runs the checks of the driver through it.
"""

from collections.abc import Callable, Iterable
from typing import Final

from kernelcast.cli.doctor.result import CheckResult, fail
from kernelcast.runtime.threads import Worker

SECONDS: Final = 15.0
"""NVML answers within milliseconds; the first query of many sleeping GPUs takes seconds."""


def within(check: Callable[[], Iterable[CheckResult]], *, name: str, seconds: float = SECONDS) -> list[CheckResult]:
    """Run a check with a time limit; if it hangs, return the findings until then and one that says so.

    Args:
        check: Runs on a separate thread, which is abandoned if it hangs.
        name: Name of the check, for people.
        seconds: The time limit.

    Raises:
        Exception: The exception of the check.
    """
    found: list[CheckResult] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            for finding in check():
                found.append(finding)  # noqa: PERF402  one by one: what came before it hung counts
        except Exception as error:  # noqa: BLE001  raised below, where the caller is
            failed.append(error)

    thread = Worker(name, run)
    thread.start()
    ended = thread.stop(seconds)
    if failed:
        raise failed[0]
    if ended:
        return found
    remedy = "the driver is in trouble: look for Xid and stuck tasks in the kernel's log; drain the node and reboot"
    return [*found, fail(name, f"no answer within {seconds:g} s", remedy)]
