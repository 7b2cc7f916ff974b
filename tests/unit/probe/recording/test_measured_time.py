"""Measured time: what was seen is divided by the time in which it could be seen."""

from kernelcast.probe.recording.measured_time import Measured, MeasuredTime
from kernelcast.probe.recording.recorder import Recorder


def test_time_without_measuring_runs_and_is_not_measured() -> None:
    time = MeasuredTime()
    time.begin(1_000)
    time.switch(1_010, measuring=False, waits=False)
    time.switch(1_100, measuring=True, waits=True)
    time.switch(1_101, measuring=True, waits=True)
    assert time.until(1_150) == Measured(running_ns=150, measured_ns=60, waits_measured_ns=60)


def test_a_process_that_has_not_begun_has_no_time() -> None:
    time = MeasuredTime()
    time.switch(5, measuring=True, waits=True)
    assert time.until(9) == Measured(0, 0, 0)


def test_time_before_measuring_began_is_running() -> None:
    time = MeasuredTime()
    time.begin(0, measuring=False)
    time.begin(500)
    time.switch(700, measuring=True, waits=True)
    assert time.until(1_000) == Measured(1_000, 300, 300)


def test_waits_have_a_measured_time_of_their_own() -> None:
    time = MeasuredTime()
    time.begin(0)
    time.switch(100, measuring=True, waits=False)
    time.switch(300, measuring=False, waits=False)
    time.switch(600, measuring=True, waits=True)
    assert time.until(1_000) == Measured(running_ns=1_000, measured_ns=700, waits_measured_ns=500)


def test_each_device_reports_the_time_of_the_process() -> None:
    now = 50
    recorder = Recorder()
    recorder.clock = lambda: now
    recorder.observe("gemm", 5, device=1)
    now = 90
    recorder.observe("gemm", 5, device=0)
    reported = [recorder.counters(device, dropped_frames=0) for device in (0, 1)]
    assert [(one.running_ns, one.measured_ns, one.waits_measured_ns) for one in reported] == [(40, 40, 40)] * 2
