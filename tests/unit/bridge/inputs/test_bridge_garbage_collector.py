"""Reading messages leaves Python's garbage collector alone; the service sets it up once, at its start."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from kernelcast.bridge import command
from kernelcast.bridge.inputs.json.otlp import OtlpJson
from kernelcast.bridge.inputs.parsing import Parsing
from kernelcast.bridge.inputs.rows import BatchRows


class SeeingParser(Parsing):
    """Notes whether the collector is on while it reads."""

    format = "seeing"

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bool] = []

    def read(self, _message: bytes, _rows: BatchRows) -> None:
        self.seen.append(gc.isenabled())


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """The collector as it was, whatever a test has left."""
    thresholds = gc.get_threshold()
    yield
    gc.enable()
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_no_parser_switches_the_collector_of_the_whole_process_off() -> None:
    parser = SeeingParser()
    parser.decode([b"x", b"y"])
    assert parser.seen == [True, True]


def test_the_collector_stays_on_while_otlp_is_read_from_json(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def loads(_message: bytes) -> Any:
        seen.append(gc.isenabled())
        return {}

    monkeypatch.setattr("kernelcast.bridge.inputs.json.otlp.loads", loads)
    OtlpJson().decode([b"{}"])
    assert seen == [True]


@pytest.mark.slow
def test_the_service_sets_the_collector_up_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[bool, int, bool]] = []

    def made(_settings: Any, **_named: Any) -> None:
        found.append((gc.isenabled(), gc.get_threshold()[0], gc.get_freeze_count() > 0))
        raise SystemExit(0)

    monkeypatch.setattr(command, "Bridge", made)
    app = typer.Typer()
    app.command()(command.bridge)
    CliRunner().invoke(app, ["--kafka.bootstrap-servers", "127.0.0.1:1"])
    assert found == [(True, command.YOUNG_OBJECTS, True)]
