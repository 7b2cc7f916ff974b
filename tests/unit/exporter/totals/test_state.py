import errno
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from tests.compatibility.storage import probe_frames

from kernelcast.exporter import state as state_module
from kernelcast.exporter.pipeline import Pipeline
from kernelcast.exporter.state import FILE_NAME, StateFile
from kernelcast.exporter.totals import snapshot
from kernelcast.exporter.totals.aggregate import Aggregator, ProgramSamples
from kernelcast.exporter.totals.report import ProcessReport, SourceBatch
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.frames import Counters, KernelName, KernelRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Process
from kernelcast.wire.kernels import kernel_id, label

SECOND_NS = 1_000_000_000
DEVICE = Device("node1", "GPU-1")
NAMES = ("gemm", "softmax", "copy")


class KilledError(BaseException):
    """Simulates kill -9: no code may catch it and continue."""


class Truth:
    """A source whose processes count on, whatever happens to the exporter."""

    def __init__(self) -> None:
        self.totals: dict[tuple[str, str], DurationTotals] = {}
        self.connected = True

    def launch(self, nonce: str, name: str) -> None:
        self.totals.setdefault((nonce, name), DurationTotals()).observe(1_000_003)

    def poll(self, now_ns: int) -> SourceBatch:  # noqa: ARG002  the protocol's
        if not self.connected:
            return SourceBatch()
        reports = [
            ProcessReport(
                Process("train", nonce, SECOND_NS),
                DEVICE,
                (KernelName(kernel_id(name), name),),
                (KernelRow(kernel_id(name), totals.count, totals),),
            )
            for (nonce, name), totals in self.totals.items()
        ]
        return SourceBatch(tuple(reports))

    def close(self) -> None:
        """Nothing is held."""

    def launches(self) -> Counter[str]:
        truth: Counter[str] = Counter()
        for (_, name), totals in self.totals.items():
            truth[label(name)] += totals.count
        return truth


class Broker:
    """Keeps published messages, and dies on demand."""

    def __init__(self) -> None:
        self.shown: Counter[str] = Counter()
        self.dies_before = -1
        self.points = 0
        self.messages = 0
        self.size_bytes = 0

    def kernels(self, group: ProgramSamples) -> None:
        for number, sample in enumerate(group.samples):
            if number == self.dies_before:
                raise KilledError
            if sample.metric is kernel.LAUNCHES:
                name, value = dict(sample.attributes)["kernel"], int(str(sample.value))
                assert value >= self.shown[name], f"{name} fell from {self.shown[name]} to {value}"
                self.shown[name] = value

    def ended(self, _written: object, _time_ns: int) -> list[ProgramSamples]:
        """Return no program: none is retired here."""
        return []

    def devices(self, samples: object) -> None:
        """This test has none."""


def aggregator_of(file: StateFile) -> Aggregator:
    aggregator = Aggregator(epoch_ns=2 * SECOND_NS)
    file.load(aggregator)
    return aggregator


def filled(count: int = 3) -> Aggregator:
    truth = Truth()
    for _ in range(count):
        truth.launch("a", "gemm")
    aggregator = Aggregator()
    for report in truth.poll(0).reports:
        aggregator.report(report)
    list(aggregator.samples(5 * SECOND_NS))
    return aggregator


def launches(aggregator: Aggregator) -> dict[str, Any]:
    return {
        dict(sample.attributes)["kernel"]: sample.value
        for group in aggregator.samples(9 * SECOND_NS)
        for sample in group.samples
        if sample.metric is kernel.LAUNCHES
    }


kill = st.sampled_from(["never", "before_save", "in_write", "before_rename", "after_save", "in_publish"])
interval = st.tuples(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(NAMES)), max_size=5),
    kill,
    st.integers(0, 20),
    st.booleans(),
)


@given(st.lists(interval, min_size=1, max_size=8))
def test_after_a_kill_at_any_point_no_series_falls_and_totals_equal_the_truth(
    tmp_path_factory: pytest.TempPathFactory, intervals: list[tuple[list[tuple[str, str]], str, int, bool]]
) -> None:
    directory = tmp_path_factory.mktemp("state")
    truth, broker = Truth(), Broker()
    file = StateFile(directory)
    pipeline = Pipeline([truth], aggregator_of(file), broker, save_state=file.save)  # type: ignore[arg-type]
    for number, (launched, point, depth, connected) in enumerate([*intervals, ([], "never", 0, True)]):
        truth.connected = connected
        for nonce, name in launched:
            truth.launch(nonce, name)
        with pytest.MonkeyPatch.context() as patch:
            arm(patch, broker, point, depth)
            try:
                pipeline.tick((10 + number) * SECOND_NS)
            except KilledError:
                file = StateFile(directory)
                pipeline = Pipeline([truth], aggregator_of(file), broker, save_state=file.save)  # type: ignore[arg-type]
        broker.dies_before = -1
    assert broker.shown == truth.launches()
    assert file.refused == 0


def arm(patch: pytest.MonkeyPatch, broker: Broker, point: str, depth: int) -> None:
    def die(*_: object, **__: object) -> None:
        raise KilledError

    def save_and_die(self: StateFile, aggregator: Aggregator, save: Any = StateFile.save) -> None:
        save(self, aggregator)
        raise KilledError

    if point == "before_save":
        patch.setattr(StateFile, "save", die)
    elif point == "in_write":
        patch.setattr(os, "fsync", die)
    elif point == "before_rename":
        patch.setattr(Path, "replace", die)
    elif point == "after_save":
        patch.setattr(StateFile, "save", save_and_die)
    elif point == "in_publish":
        broker.dies_before = depth


def test_saved_totals_are_there_after_a_restart(tmp_path: Path) -> None:
    StateFile(tmp_path).save(filled())
    restored = Aggregator()
    assert StateFile(tmp_path).load(restored)
    assert launches(restored) == {label("gemm"): 3}


def with_counters() -> Aggregator:
    aggregator = Aggregator()
    (counters,) = (one for one in probe_frames().values() if isinstance(one, Counters))
    process = Process("train", "a", SECOND_NS)
    aggregator.report(ProcessReport(process, DEVICE, counters=counters, method="event", version="0.1.0"))
    return aggregator


def test_an_unknown_counter_is_left_out() -> None:
    document = json.loads(json.dumps(snapshot.take(with_counters())))
    expected = snapshot.take(with_counters())
    (program,) = document["programs"]
    for item in (program, program["live"]["a"]):
        item["counters"].append(["invented", "x", 5])
    restored = Aggregator()
    snapshot.restore(restored, document)
    assert sum(len(group.samples) for group in restored.samples(9 * SECOND_NS)) > 0
    assert snapshot.take(restored)["programs"] == json.loads(json.dumps(expected))["programs"]


@pytest.mark.parametrize(("mode", "warned"), [(0o777, True), (0o755, False)])
def test_files_are_private_in_a_directory_of_any_mode_and_one_that_others_may_write_is_named(
    tmp_path: Path, *, mode: int, warned: bool
) -> None:
    directory, link = tmp_path / "open", tmp_path / "link"
    directory.mkdir()
    directory.chmod(mode)
    link.symlink_to(directory)
    (directory / "exporter.tmp").touch(0o666)  # left by a crash
    with capture_logs() as logs:
        file = StateFile(link).open()
        aggregator = aggregator_of(file)
        file.save(aggregator)
        file.close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir() if path.is_file()}
    assert set(modes.values()) == {0o600}, modes
    assert FILE_NAME in modes
    assert any(each.get("remedy") == f"chmod go-w {link}" for each in logs) == warned


def test_nothing_changed_means_nothing_is_written(tmp_path: Path) -> None:
    file, aggregator = StateFile(tmp_path), filled()
    file.save(aggregator)
    file.save(aggregator)
    assert file.saves == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content[:-1],
        lambda content: content.replace(b"gemm", b"gemn"),
        lambda content: b"something else entirely",
        lambda content: b"",
        lambda content: content.replace(b"-state 3 ", b"-state 9 "),
    ],
    ids=["truncated", "changed", "foreign", "empty", "another version"],
)
def test_an_unusable_file_is_renamed_and_the_exporter_starts_with_empty_totals(tmp_path: Path, spoil: Any) -> None:
    StateFile(tmp_path).save(filled())
    path = tmp_path / FILE_NAME
    spoilt = spoil(path.read_bytes())
    path.write_bytes(spoilt)
    file, aggregator = StateFile(tmp_path), Aggregator()
    assert not file.load(aggregator)
    assert file.refused == 1
    assert launches(aggregator) == {}
    assert path.with_suffix(".refused").read_bytes() == spoilt


def test_a_state_of_another_version_is_refused_in_one_line_that_names_both(tmp_path: Path) -> None:
    StateFile(tmp_path).save(filled())
    path = tmp_path / FILE_NAME
    path.write_bytes(path.read_bytes().replace(b"-state 3 ", b"-state 9 "))
    file, aggregator = StateFile(tmp_path), Aggregator()
    with capture_logs() as lines:
        assert not file.load(aggregator)
        file.save(filled())
        assert file.load(Aggregator())
    (line,) = lines
    assert line["reason"] == "ValueError: it has version 9; this exporter reads 3"
    assert line["kept_as"] == str(path.with_suffix(".refused"))


def test_a_document_of_another_shape_is_refused_whole(tmp_path: Path) -> None:
    body = b'{"epoch_ns":1,"finished":[],"programs":[{"key":[]}]}'
    (tmp_path / FILE_NAME).write_bytes(state_module._header(body) + body)
    file, aggregator = StateFile(tmp_path), Aggregator()
    assert not file.load(aggregator)
    assert aggregator.epoch_ns == 0


def stored(directory: Path, document: Any) -> None:
    body = json.dumps({**document, "final_reports": 0, "hint_receivers": []}).encode()
    (directory / FILE_NAME).write_bytes(state_module._header(body) + body)


def test_one_program_that_cannot_be_read_costs_no_other_program_its_totals(tmp_path: Path) -> None:
    document = snapshot.take(filled())
    (program,) = document["programs"]
    spoilt = {**program, "key": ["node1", "GPU-1", "", "other", "", ""], "counters": [["steps", float("inf")]]}
    document["programs"] = [spoilt, program]
    stored(tmp_path, document)
    file, aggregator = StateFile(tmp_path), Aggregator(epoch_ns=7 * SECOND_NS)
    assert file.load(aggregator)
    assert launches(aggregator) == {label("gemm"): 3}
    assert file.refused == 1, "it is counted"
    assert (tmp_path / FILE_NAME).with_suffix(".refused").exists(), "a person can look at it"
    assert aggregator.epoch_ns == 7 * SECOND_NS, "the program's series begin again, later than the lost ones"


def test_a_number_that_no_total_can_be_does_not_prevent_the_start(tmp_path: Path) -> None:
    stored(tmp_path, {**snapshot.take(filled()), "epoch_ns": float("inf")})
    file, aggregator = StateFile(tmp_path), Aggregator()
    assert not file.load(aggregator)
    assert file.refused == 1


def test_a_snapshot_that_cannot_be_replaced_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = StateFile(tmp_path)
    file.save(filled(1))

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    file.save(filled(2))
    assert (file.errors, (tmp_path / FILE_NAME).exists()) == (1, False)


def test_two_exporters_cannot_share_a_directory(tmp_path: Path) -> None:
    first = StateFile(tmp_path / "state").open()
    with pytest.raises(ConfigurationError, match="used by another exporter"):
        StateFile(tmp_path / "state").open()
    first.close()
    StateFile(tmp_path / "state").open().close()


def test_a_directory_that_cannot_be_made_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="state_directory"):
        StateFile(tmp_path / "file" / "state").open()


def test_after_a_restart_an_idle_program_keeps_its_series_until_it_is_retired(tmp_path: Path) -> None:
    StateFile(tmp_path).save(filled())
    aggregator = Aggregator(retire_after_seconds=10)
    StateFile(tmp_path).load(aggregator)
    assert list(aggregator.samples(20 * SECOND_NS))
    assert not list(aggregator.samples(31 * SECOND_NS))


def test_a_full_disk_is_an_error_that_says_what_may_be_lost_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file, now_ns = StateFile(tmp_path).open(), SECOND_NS
    monkeypatch.setattr(StateFile, "_replace", full)
    with capture_logs() as lines:
        file.save(Aggregator(epoch_ns=now_ns))
    assert [(line["log_level"], line["lost"], line["remedy"]) for line in lines] == [
        (
            "error",
            "all totals: they begin again at 0, should the exporter end before the next save",
            "free space, or name another directory with --state.directory",
        )
    ]
