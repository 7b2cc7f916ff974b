import gzip
import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from lab.replay.client import Oracle, OracleError
from lab.replay.lines import JsonLines
from lab.replay.oracle import Disturbance, Session
from lab.replay.server import _serve_connection

from kernelcast.tuning.formats import kernel_tuner, measurements
from kernelcast.tuning.formats.kernel_tuner import KernelTunerRecording, Recorded
from kernelcast.tuning.formats.measurements import Measurements
from kernelcast.tuning.search import warm
from kernelcast.tuning.space import Space
from kernelcast.wire.errors import ConfigurationError

VERDICT = {"op": "verdict", "config": [3, "a"], "against": [4, "a"], "decision": "kept"}


def recording(count: int = 21) -> KernelTunerRecording:
    entries: dict[tuple[Any, ...], Recorded] = {
        (x, mode): Recorded(times=(9.0 * (x + 1), *(float(x + 1) for _ in range(4))))
        for x in range(count)
        for mode in ("a", "b")
    }
    entries[0, "b"] = Recorded(failed="compile")
    entries[1, "b"] = Recorded(failed="runtime")
    return KernelTunerRecording("conv", "A100", "ms", {"x": tuple(range(count)), "mode": ("a", "b")}, entries)


def session(budget: int = 5, **disturbance: float) -> tuple[Session, list[Any]]:
    log: list[Any] = []
    return Session(recording(), budget, log.append, Disturbance(**disturbance)), log  # type: ignore[arg-type]


def opened(budget: int = 5, **disturbance: float) -> Session:
    found = session(budget, **disturbance)[0]
    found.answer({"op": "space", "seed": 0})
    return found


def measure(found: Session, x: int, mode: str = "a", launches: int = 1) -> dict[str, Any]:
    return found.answer({"op": "measure", "config": [x, mode], "launches": launches})


def test_the_space_is_described_with_an_average_start() -> None:
    answer = session()[0].answer({"op": "space", "seed": 3})
    assert answer["parameters"] == {"x": list(range(21)), "mode": ["a", "b"]}
    assert len(answer["valid"]) == 42
    assert 8 <= answer["start"][0] <= 12
    assert {key: answer[key] for key in ("budget", "device", "kernel", "unit")} == {
        "budget": 5,
        "device": "A100",
        "kernel": "conv",
        "unit": "ms",
    }


def test_the_start_depends_on_the_seed_alone() -> None:
    starts = [session()[0].answer({"op": "space", "seed": seed})["start"] for seed in (*range(20), *range(20))]
    assert starts[:20] == starts[20:]
    assert len({tuple(start) for start in starts}) > 2


def test_the_first_launch_of_a_configuration_is_cold() -> None:
    found = opened()
    assert measure(found, 3, launches=3) == {"times": [36.0, 4.0, 4.0], "left": 4}
    assert measure(found, 3) == {"times": [4.0], "left": 4}


def test_the_budget_counts_different_configurations_and_failures() -> None:
    found = opened(budget=3)
    assert [measure(found, x)["left"] for x in (3, 3, 4)] == [2, 2, 1]
    assert measure(found, 0, "b") == {"failed": "compile", "left": 0}
    assert measure(found, 0, "b", launches=64) == {"failed": "compile", "left": 0}
    assert "budget of 3 configurations is spent" in measure(found, 5)["refused"]
    assert measure(found, 4)["times"] == [5.0]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ([], "one JSON object"),
        ({"op": 1}, "one JSON object"),
        ({"op": "best"}, "there is no op 'best'"),
        ({"op": "space", "seed": 0}, "replays seed 0"),
        ({"op": "measure", "config": [99, "a"], "launches": 1}, "no valid configuration"),
        ({"op": "measure", "config": [[], "a"], "launches": 1}, "no valid configuration"),
        ({"op": "measure", "config": "3,a", "launches": 1}, "a configuration is a list"),
        ({"op": "measure", "config": [3, "a"], "launches": 0}, "1 to 64"),
        ({"op": "measure", "config": [3, "a"], "launches": 65}, "1 to 64"),
        ({"op": "measure", "config": [3, "a"], "launches": True}, "1 to 64"),
        ({"op": "measure", "config": [3, "a"], "launches": 1, "peek": 1}, "no field 'peek'"),
        ({"op": "verdict", "config": [3, "a"], "against": [4, "a"], "decision": "good"}, "decision is 'good'"),
        (
            {"op": "verdict", "config": [3, "a"], "against": [4, "a"], "decision": "kept", "ratio": "x"},
            "ratio is a positive number",
        ),
        ({**VERDICT, "decision": []}, "decision is []"),
        ({**VERDICT, "decision": {}}, "decision is {}"),
        ({**VERDICT, "ratio": 10**400}, "ratio is a positive number"),
        ({**VERDICT, "interval": [1, 10**400]}, "interval two of them"),
        ({"op": "end", "kept": [3, "a"]}, "was measured"),
        ({"op": "end", "kept": [0, "b"]}, "did not fail"),
    ],
)
def test_everything_else_is_refused_with_the_reason(request_: Any, reason: str) -> None:
    assert reason in opened().answer(request_)["refused"]


def test_nothing_is_measured_before_the_space_is_asked_for_or_after_the_end() -> None:
    found = session()[0]
    assert "first request" in measure(found, 3)["refused"]
    found.answer({"op": "space", "seed": 0})
    measure(found, 3)
    assert found.answer({"op": "end", "kept": [3, "a"]}) == {"ok": True}
    assert "has ended" in measure(found, 3)["refused"]


def test_the_log_has_every_request_with_its_answer() -> None:
    found, log = session()
    found.answer({"op": "space", "seed": 7})
    measure(found, 3)
    found.answer("?")
    assert [entry["seed"] for entry in log] == [7, 7, 7]
    assert log[1]["answer"] == {"times": [36.0], "left": 4}
    assert "refused" in log[2]["answer"]


def test_drift_and_a_field_change_the_times() -> None:
    drifting = opened(drift=0.01)
    times = measure(drifting, 3, launches=5)["times"]
    assert times[4] / times[1] == pytest.approx(1.01**3)
    plain, bent = opened(), opened(field=0.5)
    ratios = {measure(bent, x)["times"][0] / measure(plain, x)["times"][0] for x in range(5)}
    assert len(ratios) == 5
    assert all(0.05 < ratio < 20 for ratio in ratios)


@pytest.mark.parametrize("drift", [0.1, -0.1])
def test_a_drift_whose_times_are_no_numbers_any_more_is_refused(drift: float) -> None:
    """After 7,000 launches: 200 configurations may have 64 each, and more."""
    found = opened(drift=drift)
    answers = [measure(found, 3, launches=64) for _ in range(125)]
    refused = [answer["refused"] for answer in answers if "refused" in answer]
    assert refused
    assert "use a smaller --drift" in refused[0]


def test_requests_beyond_the_limit_are_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.replay.oracle.MAX_REQUESTS", 3)
    found, log = session()
    answers = [found.answer({"op": "x" * 1000}) for _ in range(9)]
    assert "a connection takes at most 3 requests" in answers[-1]["refused"]
    assert len(log) == 3


class FullDisk:
    """A log that takes no more, once the disk is full."""

    def __init__(self) -> None:
        self.is_full = False

    def __call__(self, _entry: Any) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_is_said_and_the_connection_is_given_back() -> None:
    disk = FullDisk()
    slots = threading.BoundedSemaphore(1)
    slots.acquire()
    ours, theirs = socket.socketpair()
    served = threading.Thread(target=_serve_connection, args=(theirs, Session(recording(), 5, disk), slots))
    served.start()
    with ours:
        lines = JsonLines(ours)
        lines.write({"op": "space", "seed": 1})
        assert "valid" in lines.read()
        disk.is_full = True
        lines.write({"op": "measure", "config": [3, "a"]})
        assert "the log cannot be written: [Errno 28] No space left on device" in lines.read()["refused"]
        assert lines.read() is None
    served.join()
    assert slots.acquire(blocking=False)


HUGE = {
    "parameters": {f"p{number}": [0, 1, 2] for number in range(64)},
    "start": [2] * 64,
    "valid": [[2] * 64],
    "budget": 9,
}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b'{"times": [1' + b"0" * 400 + b"]}", "no list of positive times"),
        (json.dumps(HUGE).encode(), "space cannot be used"),
    ],
)
def test_numbers_that_the_tuner_cannot_hold_are_an_error_of_the_oracle(answer: bytes, reason: str) -> None:
    ours, theirs = socket.socketpair()
    oracle = Oracle(Path("unused"))
    oracle._socket.close()
    oracle._lines = JsonLines(ours)
    with ours, theirs:
        theirs.sendall(answer + b"\n")
        with pytest.raises(OracleError, match=reason):
            oracle.measure([1], 1) if b"times" in answer else oracle.space(1)


def test_a_cache_file_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "cache.json.gz"
    path.write_bytes(gzip.compress(json.dumps(kernel_tuner.document(recording())).encode()))
    found = kernel_tuner.read(path)
    assert found.parameters == recording().parameters
    assert found.entries == recording().entries


def test_a_failed_entry_with_times_counts_as_failed(tmp_path: Path) -> None:
    document = kernel_tuner.document(recording())
    document["cache"]["2,a"] |= {"time": "RuntimeFailedConfig", "times": [1.0, 1.0], "GFLOP/s": 7}
    document["cache"]["3,a"] |= {"time": "CompilationFailedConfig", "times": []}
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(document))
    entries = kernel_tuner.read(path).entries
    assert (entries[2, "a"].failed, entries[3, "a"].failed) == ("runtime", "compile")


def test_an_entry_without_a_time_is_left_out(tmp_path: Path) -> None:
    """KernelTuner/kernel_tuner issue 194: entries of older versions, and of other objectives, lack fields."""
    document = kernel_tuner.document(recording())
    document["cache"]["2,a"] = {"p": 2, "q": "a", "GFLOP/s": 7}
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(document))
    assert recording().entries.keys() - kernel_tuner.read(path).entries.keys() == {(2, "a")}


def test_a_cache_file_that_is_still_open_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(kernel_tuner.document(recording())).removesuffix("}}") + ",\n")
    assert len(kernel_tuner.read(path).entries) == 42


def test_of_a_cache_file_that_ends_within_an_entry_the_whole_entries_are_read(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text(json.dumps(kernel_tuner.document(recording()), indent=1)[:-30])
    assert len(kernel_tuner.read(path).entries) == 41


ENTRY = b'{"tune_params_keys": ["x"], "tune_params": {"x": [1]}, "cache": {"1": {"x": %s, "time": %s}}}'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"\x1f\x8b",
        b'{"tune_params_keys": [], "cache": {}}',
        b"[" * 100_000,
        ENTRY % (b"1", b"1" + b"0" * 400),
        ENTRY % (b"1", b"Infinity"),
        ENTRY % (b"2", b"1.5"),
    ],
)
def test_another_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"other\.json"):
        kernel_tuner.read(path)


def test_measurements_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    written = Measurements("A100", "ms", ("x", "mode"), {(1, "a"): 2.5, (2, "b"): None}, (1, "a"))
    measurements.write(path, written)
    assert measurements.read(path) == written
    path.write_text(path.read_text().replace("measurements/1", "measurements/2"))
    with pytest.raises(ConfigurationError, match=r"this version reads kernelcast.measurements/1"):
        measurements.read(path)


@pytest.mark.parametrize(
    "changed",
    [
        {"measurements": [{"config": [1], "time": 10**400}]},
        {"measurements": [{"config": [1], "time": float("inf")}]},
        {"measurements": [{"config": [1], "time": "inf"}]},
        {"kept": "1"},
        {"kept": [1, 2]},
    ],
)
def test_measurements_that_cannot_be_used_are_refused_by_name(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = tmp_path / "measured.json"
    path.write_text(json.dumps({**Measurements("A100", "ms", ("x",), {(1,): 2.5}).to_document(), **changed}))
    with pytest.raises(ConfigurationError, match=r"measured\.json"):
        measurements.read(path)


def test_seeds_are_best_on_all_devices_and_failed_on_none() -> None:
    space = Space.restricted("s", {"x": list(range(6)), "fixed": [7]}, start={"x": 0, "fixed": 7})
    one: dict[tuple[Any, ...], float | None] = {(0,): 9.0, (1,): 1.0, (2,): 2.0, (3,): 2.0, (4,): 1.0}
    two: dict[tuple[Any, ...], float | None] = {(0,): 90.0, (1,): 50.0, (2,): 20.0, (3,): 10.0, (4,): None, (5,): 10.0}
    devices = [Measurements(name, "ms", ("x",), times) for name, times in (("A", one), ("B", two))]
    seeds = warm.seeds(space, [device.ordered(space) for device in devices])
    assert [space.values(seed) for seed in seeds] == [(3, 7), (2, 7), (1, 7), (0, 7)]
    foreign = Measurements("C", "ms", ("y",), {(1,): 1.0})
    assert warm.seeds(space, [foreign.ordered(space)]) == []


def test_lines_are_read_across_parts_and_limited() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        lines = JsonLines(ours, limit_bytes=1 << 20)
        writer = threading.Thread(target=theirs.sendall, args=(b'{"a":[' + b"1," * 200_000 + b'1]}\n{"b":2}\n',))
        writer.start()
        assert len(lines.read()["a"]) == 200_001
        assert lines.read() == {"b": 2}
        writer.join()
        for bad in (b'{"time": NaN}\n', b"x\n", b"[" * 20_000 + b"\n"):
            theirs.sendall(bad)
            with pytest.raises(ValueError, match=r"."):
                lines.read()
        theirs.sendall(b"{}")
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ValueError, match="has no end"):
            lines.read()


def t4(*results: dict[str, Any]) -> dict[str, Any]:
    return {"schema_version": "1.0.0", "results": list(results)}


def result(b: int, runtimes: list[Any], invalidity: str = "correct", **more: Any) -> dict[str, Any]:
    return {
        "configuration": {"b": b},
        "times": {"runtimes": runtimes},
        "invalidity": invalidity,
        "correctness": 1,
    } | more


def test_t4_results_are_read_as_a_recording(tmp_path: Path) -> None:
    """KernelTuner/kernel_tuner issue 194: the interchange format of the tools that follow."""
    measured = {"measurements": [{"name": "GFLOP/s", "value": 7}, {"name": "time", "value": 1.5, "unit": "ms"}]}
    path = tmp_path / "t4.json"
    failed = [result(3, [], "compile"), result(4, [], "timeout"), result(5, [1e20])]
    path.write_text(json.dumps(t4(result(1, [1.2, 1.1]), {**result(2, []), "times": {}} | measured, *failed)))
    found = kernel_tuner.read(path)
    assert found.parameters == {"b": (1, 2, 3, 4, 5)}
    assert found.entries == {
        (1,): Recorded(times=(1.2, 1.1)),
        (2,): Recorded(times=(1.5,)),
        (3,): Recorded(failed="compile"),
        (4,): Recorded(failed="runtime"),
        (5,): Recorded(failed="runtime"),
    }
    assert measurements.read(path).times == {(1,): 1.1, (2,): 1.5, (3,): None, (4,): None, (5,): None}
    path.write_text(json.dumps(t4({"configuration": {"b": 1}, "invalidity": "correct"} | measured)))
    assert kernel_tuner.read(path).entries == {(1,): Recorded(times=(1.5,))}


@pytest.mark.parametrize(
    "document",
    [
        {"General": {}, "ConfigurationSpace": {"TuningParameters": []}},  # T1, a space without results
        {"schema_version": "1.0.0", "metadata": {}},
        t4({"times": {}}),
        {"results": 5},
    ],
)
def test_a_file_of_the_same_family_is_named_by_its_fields(tmp_path: Path, document: dict[str, Any]) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigurationError, match=r"no Kernel Tuner cache file and no T4 results: .* it has ") as raised:
        kernel_tuner.read(path)
    assert next(iter(document)) in str(raised.value)


def test_t4_results_have_the_unit_of_their_objective(tmp_path: Path) -> None:
    """KTT's T4 results are in microseconds: HiPerCoRe/KTT, coulomb_2080_full_search_space_converted.json."""
    counters = [{"name": "dram__bytes.sum", "value": 1, "unit": "Byte"}]
    measured = [{"name": "TotalDuration", "value": 769.7, "unit": "Microseconds"}, *counters]
    path = tmp_path / "t4.json"
    path.write_text(json.dumps(t4(result(1, [769.7], objectives=["TotalDuration"], measurements=measured))))
    assert kernel_tuner.read(path).unit == "us"
    path.write_text(json.dumps(t4(result(1, [1.5]))))
    assert kernel_tuner.read(path).unit == "ms"


@pytest.mark.parametrize(
    ("document", "name"),
    [({"Metadata": {}, "Results": []}, "KTT"), ({"key": [], "configs_timings": []}, "Triton")],
)
def test_the_file_of_another_tuner_is_named(tmp_path: Path, document: dict[str, Any], name: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ConfigurationError, match=name):
        kernel_tuner.read(path)


@pytest.mark.parametrize("marker", [1e20, 100_000_000_000_000_000_000, 1e21])
def test_a_time_that_marks_a_failure_is_no_time(tmp_path: Path, marker: float) -> None:
    """Older versions of Kernel Tuner write 1e20 for a configuration that failed."""
    path = tmp_path / "cache.json"
    entries = {"1": {"b": 1, "time": 2.0, "times": [2.0, 2.0]}, "2": {"b": 2, "time": marker, "times": [marker]}}
    entries["3"] = {"b": 3, "time": 3.0, "times": [3.0, marker]}
    path.write_text(json.dumps({"tune_params_keys": ["b"], "tune_params": {"b": [1, 2, 3]}, "cache": entries}))
    found = kernel_tuner.read(path)
    assert [entry.failed for entry in found.entries.values()] == ["", "runtime", ""]
    assert found.typical == {(1,): 2.0, (3,): 3.0}
