"""Writes and reads one example of each format that kernelcast keeps or sends, for tests across releases.

`python tests/compatibility/storage.py DIRECTORY` writes the examples into a new directory, with the kernelcast that is
on the path, and their meaning into `meaning.json`.
"""

import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np

from kernelcast.exporter.delivery.spool.disk import DiskSpool
from kernelcast.exporter.delivery.spool.record import SpooledMessage
from kernelcast.exporter.hints.outcome_log import OutcomeLog
from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.exporter.nvml.recordings import recording
from kernelcast.exporter.programs.last.final_reports import Departure, FinalReports, sync
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.predictor.series.saved.reader import StateReader
from kernelcast.predictor.series.saved.rows import SavedRows
from kernelcast.predictor.series.saved.writer import StateWriter
from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.probe.reporting.left_outcomes import LeftOutcomes, Origin
from kernelcast.wire import cloudevents, events, frames
from kernelcast.wire.frames import KernelRow, KernelRows, VariantRow, VariantRows
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Process

SECOND_NS: Final = 1_000_000_000
DURATIONS_NS: Final = (0, 900, 1_000_003, 7_500_000)
CUMULATIVE_TOPIC: Final = "kernelcast.kernels"
SPOOL_TOPICS: Final = ("kernelcast.device", CUMULATIVE_TOPIC)
DEVICE: Final = Device("node1", "GPU-1", "3", "0000:01:00.0", "nvidia3", "NVIDIA H200", "2", "1g.18gb")
SIGNATURES: Final = ("void gemm<float>(float*, int)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL()")

EVENT_READERS: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    events.HINT_TYPE: events.hint_from,
    events.OUTCOME_TYPE: events.outcome_from,
    events.ALERT_TYPE: events.alert_from,
}


def durations() -> DurationTotals:
    """Four launches, one of them of no length."""
    totals = DurationTotals()
    for duration_ns in DURATIONS_NS:
        totals.observe(duration_ns)
    return totals


def probe_frames() -> dict[str, frames.Frame]:
    """A frame of each type; each field has a value other than its default in one of them."""
    claim = frames.TunableClaim(
        "block", "64", ("64", "128"), "block_size", "local", "step", ("gemm",), "H200", "v1", changes_results=True
    )
    of_all_ranks = replace(claim, scope="collective", granularity="epoch")
    return {
        "hello": frames.Hello(
            "train",
            "n0nce",
            5,
            42,
            "1",
            "simulated",
            "event",
            "0.1.0",
            "v1",
            (frames.DeviceClaim("GPU-1", "3", "H200", "2"),),
            image="app:2",
            cuda_version="12.4",
            driver_version="550.54.15",
        ),
        "names": frames.Names((frames.KernelName(7, SIGNATURES[0], "8x1x1", "128x1x1", 32, 1024, 16, 0.5),)),
        "kernel_rows": KernelRows(0, (KernelRow(7, 9, durations(), 2, 3000, 1),)),
        "variant_rows": VariantRows(0, (VariantRow(7, "8x1x1 train", 3, 1_000, 2**70),)),
        "counters": frames.Counters(
            0,
            (("h2d", "true", 10, 2, 300),),
            (("stream", 4, 60),),
            (("compute", 9), ("idle", 1)),
            77,
            1,
            durations(),
            (("device", "used", 4096),),
            (("forward", 3, 400, 500),),
            (("graph", 6),),
            2,
            steps=5,
            items=160,
            step_ns=900,
            trial_lost_ns=30,
            trial_allowed_ns=70,
            dropped_outcomes=3,
            malformed_hints=2,
            running_ns=9_000,
            measured_ns=8_000,
            waits_measured_ns=7_000,
            decoding_ns=40,
            untimed_records=4,
            step_durations=durations(),
            skipped_steps=1,
            phases=(("data", 200), ("forward", 700)),
            phase="forward",
            progress_ns=1_700_000_000_000_000_000,
            compilations=2,
            compile_ns=8_000,
            allocator=(("allocated", 1024), ("peak", 4096)),
            allocator_retries=1,
            out_of_memory=1,
            job=(("job", "j1"), ("world_size", "8")),
            standby=frames.ENDED,
            gpu_steps=3,
            megaflops=17,
            gpu_phases=(("data", 20), ("backward", 600)),
        ),
        "tunables": frames.Tunables((claim,)),
        "tunables_of_all_ranks": frames.Tunables((of_all_ranks,)),
        "hint": frames.HintFrame(stored_events()["hint"]),
        "outcome": frames.OutcomeFrame(stored_events()["outcome"]),
        "outcomes_confirmed": frames.OutcomesConfirmed(("event-1", "event-2")),
        "reception": frames.Reception("http://127.0.0.1:19400/", "8 processes are known"),
        "stacks_request": frames.StacksRequest(),
        "bye": frames.Bye("exit"),
        "bye_replaced": frames.Bye("replaced"),
        "status": frames.Status("event", "backed_off", "over budget", 0.25, (1.01, 1.02, 1.03)),
    }


def stored_events() -> dict[str, dict[str, Any]]:
    """A CloudEvent of each type; each field has a value other than its default in one of them."""
    hint = events.Hint(
        "h1", "train", "block", "128", 9 * SECOND_NS, "64", "H200", "v1", "0", "gemm", events.HintMode.APPLY, 0.9,
        (0.8, 0.95), 0.7, (events.Evidence("occupancy", "block", "64", "CUDA guide"),),
        "required", "ana", "epoch",
    )  # fmt: skip
    outcome = events.Outcome(
        "h1",
        "train",
        "block",
        events.OutcomeState.KEPT,
        "0",
        "faster",
        "128",
        "64",
        0.91,
        (0.9, 0.92),
        12,
        "node1",
        "GPU-1",
        "kept",
        0.93,
        0.91,
        52,
        "256",
        "H200",
        "v1",
        "epoch",
    )
    alert = events.Alert(
        "f1",
        "firing",
        "2026-01-01T00:00:00Z",
        "",
        {"alertname": "Hot"},
        {"summary": "hot"},
        "http://p",
        "r",
        "{}",
        "http://a",
    )
    resolved = replace(alert, status="resolved", ends_at="2026-01-01T01:00:00Z")
    return {
        name: events.to_event(data, source="/kernelcast/test", time_ns=SECOND_NS, event_id=name)
        for name, data in (("hint", hint), ("outcome", outcome), ("alert", alert), ("alert_resolved", resolved))
    }


def write_state(directory: Path) -> None:
    """The exporter's state: one running and one ended process."""
    aggregator = Aggregator(epoch_ns=2 * SECOND_NS)
    names = tuple(frames.KernelName(number, text, "8x1x1", "128x1x1", 32) for number, text in enumerate(SIGNATURES))
    for nonce in ("running", "ended"):
        rows = tuple(KernelRow(name.kernel, 9, durations(), 2, 3000, 1) for name in names)
        process = Process("train", nonce, SECOND_NS, "1")
        report = ProcessReport(process, DEVICE, names, rows, counters=probe_frames()["counters"])  # type: ignore[arg-type]
        aggregator.report(report)
    aggregator.report(ProcessReport(Process("train", "ended", SECOND_NS, "1"), DEVICE, final=True))
    list(aggregator.samples(5 * SECOND_NS))
    StateFile(directory).save(aggregator)


def read_state(directory: Path) -> Any:
    """Every sample that an exporter shows after it has read the state."""
    file, aggregator = StateFile(directory), Aggregator(epoch_ns=1)
    assert file.load(aggregator), "the state was refused"
    return _samples(aggregator)


def _samples(aggregator: Aggregator) -> Any:
    samples = [sample for group in aggregator.samples(9 * SECOND_NS) for sample in group.samples]
    return {f"{one.metric.otlp_name} {dict(one.attributes)}": [one.start_ns, str(one.value)] for one in samples}


def write_final_reports(directory: Path) -> None:
    """The last report of a process that ended after the state was saved."""
    known = probe_frames()
    hello = known["hello"]
    assert isinstance(hello, frames.Hello)
    process = Process(hello.program, hello.nonce, hello.start_ns, hello.rank)
    session = ProbeSession(process, hello, (DEVICE,), ProbeLimits(), keep_unsaved=True)
    for name in ("names", "kernel_rows", "variant_rows", "counters", "status"):
        session.take(known[name])
    reports = FinalReports(directory).open()
    sync(reports.append([Departure(session, final=True)]))
    reports.close()


def read_final_reports(directory: Path) -> Any:
    """Every sample that an exporter shows which had no state, only these reports."""
    reports, aggregator = FinalReports(directory).open(), Aggregator(epoch_ns=1)
    restored = reports.restore(aggregator, 0)
    reports.close()
    return {"restored": restored, "errors": reports.errors, "samples": _samples(aggregator)}


def write_outcome_log(directory: Path) -> None:
    """The exporter's log of outcomes of ended programs: three, of which Kafka has acknowledged the first."""
    log = OutcomeLog(directory).open()
    outcome = events.outcome_from(stored_events()["outcome"])
    waiting = [ReceivedOutcome(outcome, f"event-{number}", "n0nce") for number in range(3)]
    ids, descriptor = log.append(waiting, SECOND_NS)
    assert len(ids) == len(waiting)
    assert descriptor is not None
    sync(descriptor)
    log.settle(["event-0"])
    log.close()


def read_outcome_log(directory: Path) -> Any:
    """The outcomes that an exporter sends after a restart."""
    log = OutcomeLog(directory).open()
    restored = [asdict(one) for one in log.restore()]
    log.close()
    return {"restored": restored, "errors": log.errors}


LEFT_BY: Final = Origin("H200", "v1")


def _left_outcomes(directory: Path) -> LeftOutcomes:
    with mock.patch("socket.gethostname", return_value="node1"):
        return LeftOutcomes(directory / "train-1.jsonl", "0", lambda: 2 * SECOND_NS)


def write_left_outcomes(directory: Path) -> None:
    """The file of outcomes that no exporter has confirmed to a program; its next run has delivered one of them."""
    known = stored_events()["outcome"]
    _left_outcomes(directory).update([known | {"id": f"event-{number}"} for number in range(3)], LEFT_BY)
    next_run = _left_outcomes(directory)
    next_run.update([event for event in next_run.restore(LEFT_BY) if event["id"] != "event-1"], LEFT_BY)


def read_left_outcomes(directory: Path) -> Any:
    """The outcomes that the next run of the program sends."""
    file = _left_outcomes(directory)
    return {"restored": file.restore(LEFT_BY), "failures": file.failures}


def write_recording(directory: Path) -> None:
    """A recording of NVML with two moments, an error, a struct and an event; packed and not."""
    answers: dict[str, dict[str, Any]] = {
        "": {"nvmlDeviceGetCount": 1, "nvmlSystemGetDriverVersion": "580.65.06"},
        "0": {
            "nvmlDeviceGetUUID": "GPU-1",
            "nvmlDeviceGetFanSpeed": {"error": 3},
            "nvmlDeviceGetMemoryInfo": {"used": 5},
        },
    }
    moments = (
        recording.RecordedChanges(0, answers),
        recording.RecordedChanges(
            SECOND_NS, {"0": {"nvmlDeviceGetPowerUsage": 70_500}}, (recording.Event("0", 8, 79, 2),)
        ),
    )
    for name in ("nvml.jsonl", "nvml.jsonl.gz"):
        recording.write(directory / name, moments)


def read_recording(directory: Path) -> Any:
    """Every moment of each file."""
    return {path.name: asdict(recording.read(path)) for path in sorted(directory.iterdir())}


def write_spool(directory: Path) -> None:
    """Two topics: values, a tombstone, a message without a key; the first message of one is confirmed."""
    spool = DiskSpool(directory, max_bytes=2**20, max_age_seconds=1e12).open(SPOOL_TOPICS)
    for number in range(5):
        spool.append(SPOOL_TOPICS[0], SpooledMessage(SECOND_NS + number, b"node1", f"value {number}".encode()))
    spool.append(SPOOL_TOPICS[1], SpooledMessage(SECOND_NS, None, b"without a key"))
    spool.append(SPOOL_TOPICS[1], SpooledMessage(SECOND_NS, b"train", None))
    found = spool.read(SPOOL_TOPICS[0])
    assert found is not None
    spool.lane(SPOOL_TOPICS[0]).settle(found[0])
    spool.close()
    (directory / "lock").unlink()


def read_spool(directory: Path) -> Any:
    """The messages that are sent after a restart, and those that were lost."""
    lost: list[tuple[str, int]] = []
    spool = DiskSpool(
        directory, max_bytes=2**20, max_age_seconds=1e12, on_drop=lambda reason, count: lost.append((reason, count))
    ).open(SPOOL_TOPICS)
    messages = []
    for topic in SPOOL_TOPICS:
        while (found := spool.read(topic)) is not None:
            record = found[1]
            messages.append([topic, record.time_ns, *(part and part.decode() for part in (record.key, record.value))])
    spool.close()
    return {"messages": messages, "lost": lost}


def write_frames(directory: Path) -> None:
    """The packets of each frame, by name."""
    for name, frame in probe_frames().items():
        for number, packet in enumerate(frames.encode(frame)):
            (directory / f"{name}.{number}").write_bytes(packet)


def read_frames(directory: Path) -> Any:
    """The fields of each frame."""
    paths = sorted(directory.iterdir())
    return {path.name: _fields(frames.decode(path.read_bytes())) for path in paths}


def _fields(frame: Any) -> Any:
    rows = getattr(frame, "rows", None)
    if rows is not None:
        return {
            "device": frame.device,
            "rows": [{name: str(value) for name, value in row._asdict().items()} for row in rows],
        }
    return asdict(frame)


def write_events(directory: Path) -> None:
    """The value of a record for each event."""
    for name, event in stored_events().items():
        (directory / name).write_bytes(cloudevents.encode_event(event))


def read_events(directory: Path) -> Any:
    """Envelope and data of each event."""
    found = {}
    for path in sorted(directory.iterdir()):
        event = cloudevents.decode_event(path.read_bytes())
        envelope = {key: value for key, value in event.items() if key != "data"}
        found[path.name] = {"envelope": envelope, "data": asdict(EVENT_READERS[event["type"]](event))}
    return found


def saved_rows() -> SavedRows:
    """Windows of the predictor without any series."""
    windows = Windows(interval_ns=10**10, points=4, max_series=10)
    return SavedRows(windows, threading.RLock())


def write_windows(directory: Path) -> None:
    """The predictor's snapshot: a window with a gap."""
    rows = saved_rows()
    windows = rows.windows
    row = windows.admit(Subject("DCGM_FI_DEV_GPU_TEMP", Form.LEVEL, (("Hostname", "node1"), ("gpu", "3"))), owner=0)
    values = np.array([[np.nan, 70.5, 71, 73]], np.float32)
    windows.fill(np.array([row]), np.array([1000]), values)
    windows.last_ns[row] = 2000
    messages = StateWriter(rows, epoch=1, sequence=0, every_seconds=60.0).save(np.array([row]), 4711)
    for number, (key, value) in enumerate(messages):
        (directory / f"part.{number}.{key.replace('|', '-')}").write_bytes(value or b"")


def read_windows(directory: Path) -> Any:
    """Every field of the snapshot."""
    parts = {path.name: path.read_bytes() for path in sorted(directory.iterdir())}
    reader, rows = StateReader(), saved_rows()
    for name, value in parts.items():
        reader.put(name.split(".")[2].replace("-", "|"), value)
    restored = reader.restore(rows, 0, now_seconds=0.0)
    windows = rows.windows
    found = [(subject, np.array([row])) for subject, row in windows.items()]
    return {
        "offset": restored.offset,
        "reasons": restored.reasons,
        "interval_ns": windows.interval_ns,
        "points": windows.points,
        "series": [
            {
                "subject": asdict(subject),
                "values": windows.matrix(row)[0].tolist(),
                "newest": int(windows.newest[row[0]]),
                "last_ns": int(windows.last_ns[row[0]]),
            }
            for subject, row in found
        ],
    }


FORMATS: Final[dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]]] = {
    "exporter-state": (write_state, read_state),
    "final-reports": (write_final_reports, read_final_reports),
    "exporter-outcomes": (write_outcome_log, read_outcome_log),
    "left-outcomes": (write_left_outcomes, read_left_outcomes),
    "nvml-recording": (write_recording, read_recording),
    "spool": (write_spool, read_spool),
    "frames": (write_frames, read_frames),
    "events": (write_events, read_events),
    "windows-snapshot": (write_windows, read_windows),
}
"""By the name of its folder, how each format is written and read."""


def write(directory: Path) -> None:
    """Write an example of each format into a folder of its own."""
    for name, (writer, _) in FORMATS.items():
        (directory / name).mkdir(parents=True)
        writer(directory / name)


def read(directory: Path) -> dict[str, Any]:
    """Contents of each folder; for a refused folder, the reason."""
    found: dict[str, Any] = {}
    for name, (_, reader) in FORMATS.items():
        try:
            found[name] = reader(directory / name)
        except (Exception, AssertionError) as error:  # noqa: BLE001  a reason for a refusal, whichever it is
            found[name] = {"refused": f"{type(error).__name__}: {error}"}
    plain: dict[str, Any] = json.loads(json.dumps(found, default=str))
    return plain


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    write(folder)
    with tempfile.TemporaryDirectory() as copy:  # reading leaves locks
        meaning = read(Path(shutil.copytree(folder, copy, dirs_exist_ok=True)))
    (folder / "meaning.json").write_text(json.dumps(meaning, indent=1, sort_keys=True) + "\n")
