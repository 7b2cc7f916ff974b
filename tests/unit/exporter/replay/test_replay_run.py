"""`kernelcast replay` and `kernelcast simulate`: messages, output and exit codes."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from kernelcast.exporter.delivery.publish import Tally
from kernelcast.exporter.replay import TraceSource, run
from kernelcast.exporter.replay import command as replay_command
from kernelcast.exporter.replay.formats import content
from kernelcast.exporter.replay.progress import ProgressLines
from kernelcast.exporter.replay.run import FiniteSource, publish
from kernelcast.exporter.replay.settings import RunSettings
from kernelcast.exporter.replay.trace import LaunchConfiguration, Span, TraceBuilder, TraceOrigin
from kernelcast.exporter.simulate import command as simulate_command
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.wire.topics import DEVICE, KERNELS

SECOND = 1_000_000_000
NOW = 1_760_000_000 * SECOND


class Outbox:
    """Keeps messages; confirms a given number of them when polled."""

    def __init__(self, *, answers: int = 10**9, per_poll: int = 10**9) -> None:
        self.messages: list[tuple[str, bytes | None, bytes | None]] = []
        self.acknowledged = self.failed = self.dropped = 0
        self._answers, self._per_poll = answers, per_poll
        self.longest = 0
        self.closed = False
        self.patience_seconds = 0.0

    def send(self, topic: str, *, key: bytes | None, value: bytes | None) -> None:
        self.messages.append((topic, key, value))
        self.longest = max(self.longest, len(self))

    def poll(self, timeout_seconds: float = 0.0) -> None:  # noqa: ARG002 - as a producer's
        answered = min(len(self), self._per_poll, self._answers - self.acknowledged)
        self.acknowledged += max(answered, 0)

    def close(self, timeout_seconds: float) -> int:
        self.patience_seconds = timeout_seconds
        while len(self) and self.acknowledged < self._answers:
            self.poll()
        self.closed = True
        self.failed = len(self)
        return self.failed

    def __len__(self) -> int:
        return len(self.messages) - self.acknowledged


BACKLOG = 20


@pytest.fixture
def small_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "MAX_BACKLOG_MESSAGES", BACKLOG)


class Silent:
    def show(self, source: FiniteSource, tally: Tally) -> None:
        """Shows nothing."""


def source(launches: int = 3) -> TraceSource:
    recorder = TraceBuilder()
    for number in range(launches):
        recorder.launch(Span(number * SECOND, SECOND, 0), "gemm", LaunchConfiguration(), 7)
    recorder.copy(Span(0, 1, 0), "h2d", "true", 8)
    recorder.memset(Span(1, 1, 0), 8)
    trace = recorder.trace(TraceOrigin("", "d"))
    return TraceSource(trace, program="job", rank="", hostname="node1", speed=1.0, start_ns=NOW)


def every_second(count: int) -> Iterator[int]:
    yield from (NOW + number * SECOND for number in range(count))


def test_a_replay_sends_until_its_end_and_accounts_for_all() -> None:
    outbox = Outbox()
    account = publish(
        source(), RunSettings(), outbox=outbox, ticks=every_second(100), progress=Silent(), shutdown=Shutdown()
    )
    assert (account.kernels, account.copies) == (3, 1)
    assert account.messages == account.acknowledged == len(outbox.messages) == 4
    assert account.finished
    assert account.lost == 0
    assert {(topic, key) for topic, key, _ in outbox.messages} == {(KERNELS.name, b"job")}
    assert account.summary_line("x", "host:1") == (
        f"x: sent 3 kernel launches and 1 copies in {account.points} points, 4 messages, "
        "all acknowledged by Kafka at host:1"
    )


def test_a_stopped_replay_prints_its_totals_so_far() -> None:
    account = publish(
        source(), RunSettings(), outbox=Outbox(), ticks=every_second(2), progress=Silent(), shutdown=Shutdown()
    )
    assert not account.finished
    assert account.kernels == 1
    assert account.position_seconds == 1
    assert "stopped before its end" in account.summary_line("x", "host:1")


def test_unacknowledged_messages_are_reported_as_lost() -> None:
    outbox = Outbox(answers=2)
    account = publish(
        source(), RunSettings(), outbox=outbox, ticks=every_second(100), progress=Silent(), shutdown=Shutdown()
    )
    assert (account.outstanding, account.lost) == (2, 2)
    assert "2 of them NOT acknowledged by Kafka at host:1" in account.summary_line("x", "host:1")


def test_a_fast_source_waits_for_a_slow_broker_so_that_nothing_is_dropped(small_backlog: None) -> None:
    outbox = Outbox(per_poll=1)
    replayed = source(3 * BACKLOG)
    account = publish(
        replayed, RunSettings(), outbox=outbox, ticks=every_second(10**6), progress=Silent(), shutdown=Shutdown()
    )
    assert account.finished
    assert account.lost == 0
    assert outbox.longest <= BACKLOG + 1


def test_a_broker_that_never_answers_ends_the_replay(small_backlog: None) -> None:
    outbox = Outbox(answers=0)
    settings = RunSettings(flush_timeout_seconds=0)
    account = publish(
        source(3 * BACKLOG), settings, outbox=outbox, ticks=every_second(10**6), progress=Silent(), shutdown=Shutdown()
    )
    assert not account.finished
    assert account.lost == account.messages > BACKLOG


@pytest.mark.parametrize("launches", [3, 3 * BACKLOG])
def test_a_signal_ends_the_wait_for_a_broker_that_never_answers(launches: int, small_backlog: None) -> None:
    """With few messages it is the wait at the end, with many the one between two exports."""
    shutdown = Shutdown()

    class Interrupted(Outbox):
        def poll(self, timeout_seconds: float = 0.0) -> None:
            super().poll()
            if timeout_seconds:
                shutdown.request()

    outbox, settings = Interrupted(answers=0), RunSettings(flush_timeout_seconds=3600)
    account = publish(
        source(launches), settings, outbox=outbox, ticks=every_second(100), progress=Silent(), shutdown=shutdown
    )
    assert outbox.patience_seconds <= 1
    assert account.lost == account.outstanding == account.messages > 0


def test_the_outbox_is_closed_after_every_error() -> None:
    def broken() -> Iterator[int]:
        yield NOW
        raise KeyboardInterrupt

    outbox = Outbox()
    with pytest.raises(KeyboardInterrupt):
        publish(source(), RunSettings(), outbox=outbox, ticks=broken(), progress=Silent(), shutdown=Shutdown())
    assert outbox.closed


def test_without_a_terminal_a_line_comes_at_first_and_then_every_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import sys

    seconds = iter([0.0, 5.0, 10.0, 12.0])
    lines = ProgressLines("trace.json", sys.stderr, lambda: next(seconds))
    for _ in range(4):
        lines.show(source(), Tally(kernels=7))
    assert capsys.readouterr().err.count("trace.json: 0.0 of 3.0 s, 7 kernel launches") == 2


def test_a_reader_of_the_progress_that_has_ended_does_not_end_the_replay() -> None:
    """`kernelcast replay … 2>&1 | head -1`."""

    class Ended(io.StringIO):
        def write(self, text: str) -> int:  # noqa: ARG002 - as a stream's
            raise BrokenPipeError

    outbox = Outbox()
    account = publish(
        source(),
        RunSettings(),
        outbox=outbox,
        ticks=every_second(5),
        progress=ProgressLines("job", Ended()),
        shutdown=Shutdown(),
    )
    assert (account.finished, account.kernels, account.lost) == (True, 3, 0)


# The commands themselves


def trace_file(folder: Path, *events: dict[str, Any]) -> Path:
    path = folder / "job.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": list(events), "distributedInfo": {"rank": 5}}))
    return path


KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 2, "pid": 0, "args": {"device": 0}}


@pytest.fixture
def outbox(monkeypatch: pytest.MonkeyPatch) -> Outbox:
    made = Outbox()
    for module in (replay_command, simulate_command):
        monkeypatch.setattr(module, "make_producer", lambda settings, client_id: made)
    return made


def invoke(app: typer.Typer, *arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_replay_prints_its_totals_and_exits_with_0(tmp_path: Path, outbox: Outbox) -> None:
    path, summary_path = trace_file(tmp_path, KERNEL, {**KERNEL, "ts": 9}), tmp_path / "summary.json"
    code, output, _ = invoke(
        replay_command.replay, "kineto", path, "--speed", "max", "--summary", summary_path, "--hostname", "node9"
    )
    assert code == 0
    assert "2 kernel launches in 0.000 s on GPU 0" in output
    assert "sent 2 kernel launches and 0 copies" in output
    assert "all acknowledged" in output
    summary = json.loads(summary_path.read_text())
    assert (summary["kernels"], summary["lost"], summary["finished"]) == (2, 0, True)
    assert (summary["program"], summary["rank"]) == ("job", "5")
    assert outbox.messages[0][1] == b"job"


def test_replay_exits_with_1_when_kafka_did_not_acknowledge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_command, "make_producer", lambda settings, client_id: Outbox(answers=0))
    code, output, _ = invoke(replay_command.replay, "kineto", trace_file(tmp_path, KERNEL), "--speed", "max")
    assert code == 1
    assert "1 of them NOT acknowledged" in output


@pytest.mark.parametrize(("damaged", "expected"), [(0, 0), (1, 0), (2, 3), (150, 1)])
def test_replay_of_a_damaged_trace_exits_with_0_only_where_99_percent_was_read(
    tmp_path: Path, outbox: Outbox, damaged: int, expected: int
) -> None:
    path = trace_file(tmp_path, *({**KERNEL, "ts": 9.5 + 3 * number} for number in range(150)))
    path.write_text(path.read_text().replace('"name": "gemm"', '"name": "a "quote""', damaged))
    summary_path = tmp_path / "summary.json"
    code, output, _ = invoke(replay_command.replay, "kineto", path, "--speed", "max", "--summary", summary_path)
    if damaged == 150:
        assert (code, outbox.messages) == (1, [])  # nothing can be read
        return
    assert code == expected
    assert f"sent {150 - damaged} kernel launches" in output
    assert (f"{damaged} damaged event" in output) == (damaged > 0)
    summary = json.loads(summary_path.read_text())
    assert summary["read_ratio"] == pytest.approx((150 - damaged) / 150)
    assert any("damaged" in note for note in summary["notes"]) == (damaged > 0)


def test_replay_of_a_cut_trace_says_how_it_ends_and_exits_with_3(tmp_path: Path, outbox: Outbox) -> None:
    path, summary_path = trace_file(tmp_path, KERNEL, {**KERNEL, "ts": 9}), tmp_path / "summary.json"
    path.write_text(path.read_text()[:-60])
    code, output, _ = invoke(replay_command.replay, "kineto", path, "--speed", "max", "--summary", summary_path)
    assert code == 3
    assert "job.pt.trace.json: its end is missing: the file ends within an event at line 1" in output
    assert "sent 1 kernel launches" in output
    assert json.loads(summary_path.read_text())["read_ratio"] is None


def test_gpus_of_several_processes_are_shown_with_them(tmp_path: Path, outbox: Outbox) -> None:
    path = trace_file(tmp_path, {**KERNEL, "pid": "[TP00] 0"}, {**KERNEL, "pid": "[TP01] 0"})
    _, output, _ = invoke(replay_command.replay, "kineto", path, "--speed", "max")
    assert "on GPU 0 of process [TP00] 0, GPU 1 of process [TP01] 0" in output


def test_replay_of_a_trace_without_gpu_activity_says_so_and_exits_with_0(tmp_path: Path, outbox: Outbox) -> None:
    code, output, _ = invoke(replay_command.replay, "kineto", trace_file(tmp_path, {**KERNEL, "cat": "cpu_op"}))
    assert code == 0
    assert "no GPU activity" in output
    assert "it has events of cpu_op (1)" in output
    assert "sent 0 kernel launches and 0 copies" in output
    assert outbox.messages == []


def test_a_trace_of_another_accelerator_is_named_as_such(tmp_path: Path, outbox: Outbox) -> None:
    events = [
        {**KERNEL, "cat": category} for category in ("mtia_ccp_events", "MTIA_runtime", "mtia_ccp_events", "none")
    ]
    more = [{**KERNEL, "cat": f"cat{number}"} for number in range(20)]
    code, output, _ = invoke(replay_command.replay, "kineto", trace_file(tmp_path, *events, *more))
    assert code == 0
    assert "no GPU activity" in output
    assert "it has events of mtia_ccp_events (2), mtia_runtime (1)" in output
    assert "and 15 more categories" in output
    assert outbox.messages == []


def test_a_trace_without_any_event_says_so(tmp_path: Path, outbox: Outbox) -> None:
    code, output, _ = invoke(replay_command.replay, "kineto", trace_file(tmp_path))
    assert (code, outbox.messages) == (0, [])
    assert "no kernels, no copies; it has no events" in output


def test_a_longer_trace_is_read_where_the_user_raises_the_limit(
    tmp_path: Path, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = trace_file(tmp_path, KERNEL)
    size = path.stat().st_size
    code, _, error = invoke(replay_command.replay, "kineto", path, "--speed", "max", "--max-bytes", size - 1)
    assert (code, outbox.messages) == (1, [])
    assert f"the limit is {size - 1}" in error
    assert "--max-bytes" in error
    code, output, _ = invoke(replay_command.replay, "kineto", path, "--speed", "max", "--max-bytes", size)
    assert (code, "sent 1 kernel launches" in output) == (0, True)


def test_the_limit_of_a_trace_is_256_mebibytes_and_at_least_a_byte(tmp_path: Path) -> None:
    assert content.MAX_TRACE_BYTES == 256 * 1024**2
    code, _, error = invoke(replay_command.replay, "kineto", trace_file(tmp_path, KERNEL), "--max-bytes", 0)
    assert (code, "--max-bytes" in error) == (2, True)


def test_replay_of_a_file_that_is_no_trace_exits_with_1(tmp_path: Path, outbox: Outbox) -> None:
    path = tmp_path / "bad.json"
    path.write_text("{")
    code, _, errors = invoke(replay_command.replay, "kineto", path)
    assert code == 1
    assert str(path) in errors
    code, _, errors = invoke(replay_command.replay, "nsys", path)
    assert code == 1
    assert "not a SQLite file" in errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--speed", "fast"], "speed is fast"),
        (["--speed", "0"], "speed is 0"),
        (["--speed", "nan"], "speed is nan"),
        (["--kernels", "few"], "kernels is few"),
        (["--kernels", "0"], "kernels is 0"),
        (["--interval", "0"], "--interval is 0"),
        (["--log.level", "loud"], "log.level is loud"),
        (["--program", "a\nb"], "--program"),
        (["--frobnicate"], "frobnicate"),
    ],
)
def test_usage_errors_exit_with_2_and_say_what(tmp_path: Path, outbox: Outbox, arguments: list[str], said: str) -> None:
    code, output, errors = invoke(replay_command.replay, "kineto", trace_file(tmp_path, KERNEL), *arguments)
    assert code == 2
    assert said in output + errors
    assert outbox.messages == []


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path, outbox: Outbox) -> None:
    code, _, errors = invoke(replay_command.replay, "nsys", tmp_path / "absent.sqlite")
    assert code == 2
    said = " ".join(errors.replace("│", " ").split())
    assert "does not exist" in said
    assert "`nsys export --type sqlite`, has written" in said


def test_settings_come_from_the_file_s_own_section_too(tmp_path: Path, outbox: Outbox) -> None:
    config = tmp_path / "kernelcast.yaml"
    config.write_text("replay:\n  speed: max\n  kernels: all\nexporter: {}\n")
    code, output, _ = invoke(
        replay_command.replay, "kineto", trace_file(tmp_path, {**KERNEL, "dur": 1e9}), "--config", config
    )
    assert code == 0
    assert "sent 1 kernel launches" in output


def test_simulate_publishes_a_past_and_writes_the_truth(tmp_path: Path, outbox: Outbox) -> None:
    truth, summary_path = tmp_path / "truth.json", tmp_path / "summary.json"
    code, output, _ = invoke(
        simulate_command.simulate,
        *("--gpus", 2, "--nodes", 2, "--duration", 60, "--interval", 10, "--speed", "max"),
        *("--fault", "kernel-slowdown:node=1,gpu=1,start=30s", "--background", "restart:start=20s"),
        *("--truth", truth, "--summary", summary_path),
    )
    assert code == 0
    assert "2 nodes of 2 simulated GPUs" in output
    assert {(topic, key) for topic, key, _ in outbox.messages} == {
        (DEVICE.name, b"sim-node-0"),
        (DEVICE.name, b"sim-node-1"),
        (KERNELS.name, b"sim-train-0"),
        (KERNELS.name, b"sim-train-1"),
    }
    assert len(outbox.messages) == 6 * 4
    records = json.loads(truth.read_text())
    assert [(record["fault"], record["is_fault"]) for record in records] == [
        ("kernel-slowdown", True),
        ("restart", False),
        ("restart", False),
    ]
    assert records[0]["breach_ns"] - records[0]["onset_ns"] == 0
    summary = json.loads(summary_path.read_text())
    assert summary["position_seconds"] == 60
    assert summary["kernels"] > 100_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fault", "gremlins"], "kinds are"),
        (["--fault", "thermal-drift:gpu=99"], "gpu is 99"),
        (["--gpus", "0"], "gpus is 0"),
        (["--speed", "max"], "--duration"),
        (["--duration", "-1"], "--duration is -1"),
    ],
)
def test_a_simulation_that_cannot_be_exits_with_2(outbox: Outbox, arguments: list[str], said: str) -> None:
    code, output, errors = invoke(simulate_command.simulate, *arguments)
    assert code == 2
    assert said in output + errors


def test_a_file_that_cannot_be_written_ends_the_run_before_it_begins(tmp_path: Path, outbox: Outbox) -> None:
    nowhere, summary_path = tmp_path / "absent" / "x.json", tmp_path / "summary.json"
    past = ("--duration", 5, "--speed", "max", "--summary", summary_path)
    attempts = (
        invoke(simulate_command.simulate, *past, "--truth", nowhere),
        invoke(replay_command.replay, "kineto", trace_file(tmp_path, KERNEL), "--speed", "max", "--summary", nowhere),
    )
    for code, _, errors in attempts:
        assert code == 2
        assert "cannot be written" in errors
    assert outbox.messages == []
    assert not summary_path.exists()


def test_a_summary_is_written_to_the_file_that_a_link_names(tmp_path: Path, outbox: Outbox) -> None:
    link, target = tmp_path / "latest.json", tmp_path / "summary.json"
    link.symlink_to(target)
    past = ("--duration", 5, "--speed", "max", "--summary", link)
    assert invoke(simulate_command.simulate, *past, "--truth", tmp_path / "absent" / "x")[0] == 2
    assert link.is_symlink()
    assert not target.exists()
    assert invoke(simulate_command.simulate, *past)[0] == 0
    assert outbox.messages
    assert link.is_symlink()
    assert target.read_text()


def test_a_file_that_is_read_or_written_already_is_not_overwritten(tmp_path: Path, outbox: Outbox) -> None:
    path, config, both = trace_file(tmp_path, KERNEL), tmp_path / "kernelcast.yaml", tmp_path / "both.json"
    config.write_text("replay:\n  speed: max\n")
    (tmp_path / "link.json").symlink_to(path)
    before = [one.read_text() for one in (path, config)]

    replays = [
        invoke(replay_command.replay, "kineto", path, "--config", config, "--summary", summary_path)
        for summary_path in (path, config, tmp_path / "link.json")
    ]
    simulated = ("--duration", 5, "--speed", "max", "--truth", both, "--summary", both)
    for code, _, errors in (*replays, invoke(simulate_command.simulate, *simulated)):
        assert code == 2
        assert "choose another file" in errors
    assert [one.read_text() for one in (path, config)] == before
    assert outbox.messages == []
    assert not both.exists()
