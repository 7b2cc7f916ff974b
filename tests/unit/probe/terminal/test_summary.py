"""Facts about a run, from totals of the test, and the box that shows them."""

from dataclasses import replace

import pytest

from kernelcast.probe.recording.device_recorder import AllocatorState
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.settings import ProbeSettings
from kernelcast.probe.terminal.box import WIDTH, box
from kernelcast.probe.terminal.situation import Situation
from kernelcast.probe.terminal.summary import RunSummary, _process_peak_bytes, summary
from kernelcast.probe.terminal.tuning import TuningResult
from kernelcast.wire.frames import PHASES, Status

SECOND_NS = 1_000_000_000


def trained(steps: int = 11) -> Recorder:
    """A recorder of steps of one second and 8 items, whose phases are 40 % data and 60 % backward."""
    recorder = Recorder()
    recorder.report_on(0)
    for number in range(steps):
        recorder.progress.advance(number * SECOND_NS, 8)
        if number:
            recorder.progress.phase_ns[PHASES.index("data")] += SECOND_NS * 4 // 10
            recorder.progress.phase_ns[PHASES.index("backward")] += SECOND_NS * 6 // 10
    return recorder


def summed(recorder: Recorder, status: Status | None = None) -> RunSummary:
    return summary(
        recorder,
        Situation(has_begun=True, status=status),
        ProbeSettings("train"),
        running_seconds=20.0,
        has_ended=True,
    )


def test_rates_are_those_between_the_first_and_the_last_step() -> None:
    run = summed(trained())
    assert (run.steps, run.items) == (11, 88)
    assert (run.step_seconds, run.steps_per_second, run.items_per_second) == (10.0, 1.0, 8.0)
    assert run.phase_seconds == {"data": pytest.approx(4.0), "backward": pytest.approx(6.0)}
    assert run.verdict == "the largest part of the step is backward, 60 %; 40 % waits for data"


def test_a_program_without_a_step_has_its_kernels_and_what_to_call() -> None:
    recorder = Recorder()
    recorder.observe("conv", 5)
    recorder.region("decode", 0, 0, 5 * SECOND_NS, 0)
    lines = box(summed(recorder))
    assert lines[0].startswith("+- kernelcast: train: 0 steps --")
    assert lines[1].startswith("| regions: decode 5 s ")
    assert any(line.startswith("| conv ") for line in lines)
    assert lines[-2].strip("| ") == "no step was seen: call kernelcast.probe.step() after each pass of the loop"


def test_regions_stand_beside_phases_and_leave_room_for_fewer_kernels() -> None:
    recorder = trained()
    for number in range(7):
        recorder.region(f"region {number}", 0, 0, (number + 1) * SECOND_NS // 2, 0)
        recorder.observe(f"kernel{number}", 1_000 * (number + 1))
    lines = box(summed(recorder))
    assert lines[2].startswith("| regions: region 6 3.5 s, region 5 3 s, ")
    assert lines[2].rstrip("| ").endswith(", ..")
    assert len(lines) == 10
    assert sum(line.startswith("| kernel") for line in lines) == 4


def test_a_rank_says_of_how_many_it_is() -> None:
    recorder = trained()
    recorder.job = lambda: (("world_size", "8"),)
    run = replace(summed(recorder), rank="0")
    assert box(run)[0].startswith("+- kernelcast: train rank 0 of 8: 11 steps")
    assert box(replace(run, ranks=None))[0].startswith("+- kernelcast: train rank 0: 11 steps")


def test_the_hottest_kernels_count_launches_that_were_not_timed() -> None:
    recorder = trained()
    for number in range(7):
        recorder.observe(f"kernel{number}", 1_000 * (number + 1))
    recorder.count("kernel0", 99)
    run = summed(recorder)
    assert [hot.kernel.partition("#")[0] for hot in run.hottest_kernels] == [f"kernel{one}" for one in (0, 6, 5, 4, 3)]
    assert run.hottest_kernels[0].launches == 100
    assert run.hottest_kernels[0].gpu_seconds == pytest.approx(100e-6)
    assert run.hottest_kernels[0].gpu_time_ratio == pytest.approx(100 / 127)


def test_pytorchs_peak_stands_before_that_of_the_process() -> None:
    recorder = trained()
    assert "of the process" in "\n".join(box(summed(recorder)))
    recorder.allocator = lambda _device: AllocatorState((("peak", 3 * 2**30),))
    assert summed(recorder).gpu_memory_peak_bytes == {"0": 3 * 2**30}
    assert "at most 3.00 GiB of the GPU in PyTorch" in "\n".join(box(summed(recorder)))


def test_this_processs_peak_is_known() -> None:
    peak = _process_peak_bytes()
    assert peak is not None
    assert peak > 2**20
    assert _process_peak_bytes("/nowhere") is None


def test_without_phases_and_regions_the_verdict_names_what_would_measure_them() -> None:
    recorder = Recorder()
    recorder.report_on(0)
    for number in range(3):
        recorder.progress.advance(number * SECOND_NS)
    assert summed(recorder).verdict == "phases are not known; probe.data(batches) would measure the waits for data"


def test_the_box_has_ten_lines_of_80_ascii_columns_at_most() -> None:
    recorder = trained()
    for name in PHASES:
        recorder.progress.phase_ns[PHASES.index(name)] += SECOND_NS
    for number in range(9):
        recorder.observe(f"void gemm_{number}<float, {'x' * 300}>(µ)", 10**9, grid=(1, 1, 1))
    status = Status("cupti", "active", cost=(1.0, 1.02, 1.04))
    run = replace(summed(recorder, status), program="p" * 128, rank="12", steps=10**12, items_per_second=1e12)
    lines = box(run)
    assert len(lines) == 10
    assert {len(line) for line in lines} == {WIDTH}
    assert "\n".join(lines).isascii()
    assert any("CUPTI costs 2 % of a step" in line for line in lines)


def test_without_phases_the_largest_region_is_named() -> None:
    recorder = Recorder()
    recorder.report_on(0)
    for number in range(3):
        recorder.progress.advance(number * SECOND_NS)
    recorder.region("training", 0, 0, SECOND_NS // 2, 0)
    recorder.region("loading", 0, 0, SECOND_NS, 0)
    text = "\n".join(box(summed(recorder)))
    assert "| regions: loading 1 s, training 500 ms " in text
    assert "the largest region is loading" in text


def phased(**shares: float) -> Recorder:
    """Eleven steps of one second whose phases have these shares, in per cent."""
    recorder = Recorder()
    recorder.report_on(0)
    for number in range(11):
        recorder.progress.advance(number * SECOND_NS, 0)
    for name, share in shares.items():
        recorder.progress.phase_ns[PHASES.index(name)] = int(SECOND_NS * share / 10)
    return recorder


def test_a_phase_is_never_cut_off() -> None:
    shares = {"forward": 40, "backward": 22, "evaluation": 12, "data": 8, "optimizer": 6, "checkpoint": 5, "other": 7}
    lines = box(summed(phased(**shares)))
    said = " ".join(line.strip("| ") for line in lines[1:3])
    assert said == "time: " + ", ".join(f"{name} {share} %" for name, share in shares.items())
    assert {len(line) for line in lines} == {WIDTH}


def test_with_five_kernels_the_phases_that_do_not_fit_are_said_to_be_left_out() -> None:
    shares = {"forward": 40, "backward": 22, "evaluation": 12, "data": 8, "optimizer": 6, "checkpoint": 5, "other": 7}
    recorder = phased(**shares)
    for number in range(5):
        recorder.observe(f"kernel{number}", 1_000 * (number + 1))
    lines = box(summed(recorder))
    assert len(lines) == 10
    assert lines[1].strip("| ").endswith("data 8 %, ..")


def test_a_short_run_says_what_measuring_took_as_its_report_does() -> None:
    run = replace(summed(trained()), running_seconds=2.0, measuring_ratio=0.042)
    assert "; measuring took 4.2 %" in "".join(box(run))


@pytest.mark.parametrize("columns", [20, 40, 60, 79, 80, 200])
def test_the_box_fits_the_terminal_and_cuts_no_sentence(columns: int) -> None:
    recorder = trained()
    for number in range(8):
        recorder.observe(f"gemm_{number}_{'x' * 99}", 10**9, grid=(1, 1, 1))
    run = summed(recorder)
    lines = box(run, columns)
    assert {len(line) for line in lines} == {min(80, max(40, columns))}
    assert len(lines) == 10
    said = " ".join(line.strip("| ") for line in lines)
    assert run.verdict in said
    assert "; measuring took" in said
    assert "1 steps/s" in said
    assert "8 items/s" in said
    assert "time: backward 60 %, data 40 %" in said


def tuned(name: str, *parameters: str) -> TuningResult:
    return TuningResult(name, "kept", " ".join(f"{parameter}=128" for parameter in parameters), 0.5)


def test_a_single_result_has_all_its_values_and_many_have_a_line_each() -> None:
    run = summed(trained())
    single = box(replace(run, tuning=(tuned("gemm.call ('PyTreeDef', 512)", *"abcdefghijkl"),)))
    said = " ".join(line.strip("| ") for line in single if "=128" in line)
    assert said.startswith("tuned: gemm.call ('PyTreeDef'..: kept a=128 b=128")
    assert said.endswith("l=128, 0.50 of the time")
    many = box(replace(run, tuning=tuple(tuned(f"space{number}", "a") for number in range(5))))
    lines = [line.strip("| ") for line in many if line.startswith("| tuned")]
    assert lines[0] == "tuned: space0: kept a=128, 0.50 of the time"
    assert lines[2] == "tuned: 3 more; --report FILE.json has all"
    assert len(lines) == 3


def test_without_a_loader_forward_is_shown_as_forward_or_data() -> None:
    """In the line and in the verdict, which is not cut."""
    lines = box(summed(phased(forward=91, backward=9)))
    assert lines[1].startswith("| time: forward or data 91 %, backward 9 % ")
    assert lines[-2].strip("| ") == "forward or data: 91 % of the step; probe.data(batches) tells them apart"
    assert box(summed(phased(data=9, forward=91)))[1].startswith("| time: forward 91 %, data 9 % ")


def test_a_first_step_that_takes_a_notable_part_of_the_run_is_named() -> None:
    recorder = trained()
    assert "first step" not in "\n".join(box(summed(recorder)))
    recorder.progress.begun_ns = recorder.progress.first_ns - SECOND_NS * 4 // 10
    assert summed(recorder).first_step_seconds == pytest.approx(0.4)
    assert "first step" not in "\n".join(box(summed(recorder))), "0.4 of 10.4 s"
    recorder.progress.begun_ns -= SECOND_NS
    assert box(summed(recorder))[1].startswith("| time: backward 60 %, data 40 %, first step 1.4 s, not counted ")
