"""Modules that a new interpreter imports for the encoder, for the decoder, and for services that start."""

import json
import subprocess
import sys
from pathlib import Path

from kernelcast.exporter.nvml.recordings.recording import RecordedChanges, write

LOADED = "import sys; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before))"


def brought_in(statement: str) -> set[str]:
    """The modules that a statement imports in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(statement)], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_who_only_encodes_pays_for_no_array_and_no_compiler() -> None:
    modules = brought_in("from kernelcast.columnar import EndedSeries, Resource, Sample, encode")
    assert "kernelcast.columnar.encoding.encoder" in modules
    assert not modules & {"numpy", "numba", "llvmlite", "google.protobuf"}


def test_the_exporter_imports_neither_numpy_nor_numba() -> None:
    modules = brought_in("import kernelcast.exporter.command")
    assert "kernelcast.exporter.assembly" in modules
    assert not modules & {"numpy", "numba", "llvmlite", "google.protobuf"}


def test_the_decoder_is_there_for_who_asks() -> None:
    assert "numba" in brought_in("from kernelcast.columnar import Decoder")


def test_a_predictor_starts_without_the_package_of_its_filters() -> None:
    modules = brought_in("import kernelcast.predictor.command")
    assert "kernelcast.predictor.forecasting.rolling" in modules
    assert not modules & {"scipy.signal", "scipy.stats", "pandas", "statsmodels"}


def test_a_running_exporter_holds_neither_rich_nor_what_its_settings_do_not_need(tmp_path: Path) -> None:
    """`--check-config` imports the whole daemon and reads every file of its settings."""
    recording = tmp_path / "nvml.jsonl"
    write(recording, [RecordedChanges(0, {"": {"nvmlDeviceGetCount": 0}})])
    settings = tmp_path / "kernelcast.yaml"
    settings.write_text(json.dumps({"exporter": {"nvml_recording": str(recording)}}))
    arguments = ["exporter", "--check-config", "--config", str(settings)]

    modules = brought_in(f"from kernelcast.cli.app import run; assert run({arguments}) == 0")

    assert {"kernelcast.exporter.assembly", "confluent_kafka", "structlog", "uvicorn"} <= modules
    assert not modules & {"rich", "pygments", "markdown_it", "pynvml", "bcrypt", "grpc", "google.protobuf"}
