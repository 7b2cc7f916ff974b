"""`Probe.stop`: what it may do to the end of the program."""

from pathlib import Path

import pytest

import kernelcast.probe.probe as probe_module
from kernelcast.probe.methods.selection import MethodSelection
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.reporting.sender import ReportSender
from kernelcast.wire.tuning.experience import Experience


class Search:
    """The searches of a decorated function."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.reasons: list[str] = []

    def close(self, reason: str) -> None:
        self.reasons.append(reason)
        if self.error:
            raise self.error

    def learn(self, experience: Experience) -> None:
        """Not used here."""


class BusyLock:
    """A lock that another thread never releases; waiting for it passes time."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def acquire(self, *, timeout: float) -> bool:
        self.clock[0] += timeout
        return False


def test_the_waits_at_the_end_take_at_most_200_ms_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [50.0]

    def full_wait(_sender: ReportSender, seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(probe_module, "monotonic", lambda: clock[0])
    monkeypatch.setattr(ReportSender, "stop", full_wait)
    probe = Probe(ProbeSettings("train", socket_path=str(tmp_path / "none")), {})
    probe.selection._lock = BusyLock(clock)  # type: ignore[assignment]
    probe.stop()
    probe.abandon()
    assert clock[0] - 50.0 <= 0.2 + 1e-9


def test_an_error_at_the_end_reaches_the_probes_count_and_the_rest_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(ReportSender, "stop", lambda *_: stopped.append("sender"))
    monkeypatch.setattr(MethodSelection, "stop", lambda *_: stopped.append("method"))
    probe = Probe(ProbeSettings("train", socket_path=str(tmp_path / "none")), {})
    broken, whole = Search(ZeroDivisionError()), Search()
    for search in (broken, whole):
        probe.surroundings.register(search)
    probe.stop()
    probe.abandon()
    assert broken.reasons == whole.reasons == ["the program ended"]
    assert stopped == ["sender", "method"]
    assert probe._sender.failures == 1
